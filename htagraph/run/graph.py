"""TraceGraph: the typed graph of one rank, or of a window of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from htagraph.errors import MissingEventsError, QueryError
from htagraph.explain.waited_for import chain_window, since_edge
from htagraph.findings.path import CriticalPath
from htagraph.lookup.attribution import track_labels
from htagraph.lookup.find_window import find_event, find_window, moment_in, next_work
from htagraph.lookup.matching import find_matches
from htagraph.lookup.patterns import Hop, Pattern, parse_pattern
from htagraph.lookup.selecting import (
    Kinds,
    events_in,
    kind_mask,
    name_mask,
    named_under,
    under_mask,
    where_rows,
)
from htagraph.lookup.steps import find_steps
from htagraph.lookup.windowed import edge_frame, edges_in, windowed_edges
from htagraph.model.archive import pack
from htagraph.model.arrays import I64
from htagraph.model.columns import schema_of
from htagraph.model.dag import Dag
from htagraph.model.frames import EDGES, EVENTS, STEPS
from htagraph.model.kinds import EdgeKind, in_words
from htagraph.model.recording import Origin, damage_in_words
from htagraph.model.schema import categorical
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window, WindowClock
from htagraph.queries.questions import ARGS_READERS, Questions, check_options, question_of
from htagraph.run.matches import Matches
from htagraph.run.selection import Selection
from htagraph.run.why import Why
from htagraph.writers.answering import answer_of, answers
from htagraph.writers.notebook_cell import table_html
from htagraph.writers.output_file import write_arrays

if TYPE_CHECKING:
    from htagraph.arrays.rustworkx_graphs import PyDiGraph
    from htagraph.findings.verdict import Verdict

_N_DAMAGED = 2
"""Sentences on damage below an answer: chosen, `damage` has all."""


@dataclass(frozen=True, repr=False)
class TraceGraph(Questions):
    """The graph of one rank: what happened, and what had to happen before what.

    Parameters
    ----------
    dag : Dag
    asked : Window, optional
        The window that questions are answered for; by default whole steps, as `interval` says.
    rank : int
    origin : Origin, optional
        The file that the trace was read from.
    """

    dag: Dag
    asked: Window | None = None
    rank: int = 0
    origin: Origin | None = None

    @cached_property
    def _default(self) -> tuple[Window, tuple[str, ...]]:
        """The default window, and what of the trace it leaves out."""
        from htagraph.explain.default_window import default_window  # noqa: PLC0415  deferred

        return default_window(self.dag)

    @property
    def interval(self) -> Window:
        """The window that questions are answered for.

        By default its whole steps, without the first if that is unlike the others, without work
        from before the profile, and without what surrounds lost records; without steps, the rest.
        ``window("trace")`` is all of the trace.
        """
        return self._default[0] if self.asked is None else self.asked

    @property
    def left_out(self) -> tuple[str, ...]:
        """What the default window leaves out of the trace; empty if a window was asked for."""
        return self._default[1] if self.asked is None else ()

    @property
    def n_steps(self) -> int:
        """Whole steps that the window consists of, 0 if it is not made of steps."""
        return self.interval.n_steps

    @property
    def dur_ns(self) -> int:
        """Length of the window."""
        return self.interval.dur_ns

    @cached_property
    def _event_rows(self) -> I64:
        """Events that overlap the window."""
        return events_in(self.dag, self.interval)

    @cached_property
    def _edge_rows(self) -> I64:
        """Edges that overlap the window."""
        return edges_in(self.dag, self.interval)

    @property
    @answers(EVENTS)
    def events(self) -> pd.DataFrame:
        """Events that overlap the window, schema `frames.EVENTS`; not clipped."""
        return self.dag.events.frame(self._event_rows)

    @property
    @answers(EDGES)
    def edges(self) -> pd.DataFrame:
        """Edges that overlap the window, schema `frames.EDGES`."""
        return edge_frame(self.dag, self._edge_rows)

    @property
    def rejected_edges(self) -> pd.DataFrame:
        """Edges that would run backward in time, with their skew; no answer uses them."""
        rejected = self.dag.rejected
        return pd.DataFrame(
            {
                "kind": categorical(rejected.edges.kind, EdgeKind.labels()),
                "tail_event": rejected.edges.tail.astype(np.int64) >> 1,
                "head_event": rejected.edges.head.astype(np.int64) >> 1,
                "skew_ns": rejected.skew_ns,
                "rule": rejected.edges.rule_names,
            }
        )

    @cached_property
    @answers(STEPS)
    def steps(self) -> pd.DataFrame:
        """Steps of the trace, schema `frames.STEPS`."""
        return find_steps(self.dag.events)

    def window(
        self,
        window: str | re.Pattern[str] | tuple[int, int],
        *,
        on: WindowClock = "host",
        instance: int | None = None,
    ) -> TraceGraph:
        """The graph of a part of the trace.

        Parameters
        ----------
        window : str, re.Pattern or (int, int)
            Name of a step or of any host range, a glob or regex for one; a step by its number
            (``"5"``: ``ProfilerStep#5``), ``"first"``, ``"last"`` or ``"median"`` (the
            representative one of `steady_state`); times from the start of the trace
            (``"10ms:20ms"``); ``"trace"`` for all of it; or ``(start_ns, end_ns)``. An annotation
            named ``"last"`` or ``"5"`` takes precedence.
        on : {"host", "device"}
            For a name: the host range, or the span of the device work launched in it.
        instance : int, optional
            Which of several ranges with this name, in order of time; negative from the end. By
            default the first, with a warning.

        Raises
        ------
        WindowNotFoundError
            If nothing has this name; the hint lists the steps.
        QueryError
            If the times are in the wrong order, the pattern is no regular expression, or typical
            steps are too few for a median one.

        Warns
        -----
        AmbiguousWindowWarning
            If several ranges match, and `instance` does not say which.

        Examples
        --------
        >>> import htagraph as hg
        >>> graph = hg.load(hg.demo_trace("none")).compile()
        >>> [graph.window(word).interval.name for word in ("last", "0", "median")]
        ['ProfilerStep#2', 'ProfilerStep#0', 'ProfilerStep#1']
        >>> graph.window("1ms:3ms").dur_ns
        2000000
        """
        return replace(self, asked=find_window(self.dag, window, on=on, instance=instance))

    def select(
        self,
        *,
        kind: Kinds | None = None,
        name: str | re.Pattern[str] | None = None,
        stream: int | Sequence[int] | None = None,
        thread: int | str | None = None,
        where: str | None = None,
        under: str | re.Pattern[str] | Selection | None = None,
        on_path: bool | None = None,
    ) -> Selection:
        """Events of the window that match all conditions.

        Parameters
        ----------
        kind : str, EventKind, or several, optional
            ``"op"``, ``"kernel"``, …; also ``"launch"`` (API calls that launched work),
            ``"collective"`` (communication kernels), ``"device"``, ``"host"``.
        name : str or re.Pattern, optional
            Glob or regex.
        stream : int or sequence of int, optional
        thread : int or str, optional
            Thread id as in the file.
        where : str, optional
            Expression over the columns of `events`: ``"dur_ns > 1_000_000"``.
        under : str, re.Pattern or Selection, optional
            Below these in the call tree: nested in them, or launched from there; in a captured
            graph, too, if its capture was added.
        on_path : bool, optional
            On the window's critical path, or not.

        Raises
        ------
        QueryError
            If a kind does not exist, or an expression cannot be evaluated.
        """
        dag, rows = self.dag, self._event_rows
        if kind is not None:
            rows = rows[kind_mask(dag, kind)[rows]]
        if name is not None:
            rows = rows[name_mask(dag, name)[rows]]
        if stream is not None:
            rows = rows[
                np.isin(dag.events.stream[rows], np.atleast_1d(stream)) & dag.events.is_device[rows]
            ]
        if thread is not None:
            lanes = [lane for lane, tid in enumerate(dag.events.lanes.tid) if tid == thread]
            rows = rows[np.isin(dag.events.lane[rows], lanes)]
        if isinstance(under, Selection):
            rows = rows[under_mask(dag, np.isin(np.arange(len(dag.events)), under.rows))[rows]]
        elif under is not None:
            rows = rows[named_under(dag, under)[rows]]
        if on_path is not None:
            rows = rows[np.isin(rows, self._path_rows()) == on_path]
        return Selection(
            dag, self.interval, rows if where is None else where_rows(dag, rows, where), self.origin
        )

    def find(self, what: str | re.Pattern[str] | int, *, instance: int | None = None) -> Selection:
        """One event of the window.

        Parameters
        ----------
        what : str, re.Pattern or int
            Name, glob or regex; a number is a row of the event table, in any window.
        instance : int, optional
            Which of several, in order of time; negative from the end. By default the first, with a
            warning.

        Raises
        ------
        QueryError
            If there is no such event in the graph; the hint suggests names.

        Warns
        -----
        AmbiguousWindowWarning
            If several match, and `instance` does not say which.
        """
        event = find_event(self.dag, self.interval, what, instance=instance)
        return Selection(self.dag, self.interval, np.array([event]), self.origin)

    def match(self, *pattern: str | Pattern | Hop) -> Matches:
        """Chains of events of the window that fit a pattern.

        Parameters
        ----------
        *pattern : str, or Pattern and Hop in turn
            A text, events with arrows between them: ``"op aten::linear -LAUNCH> kernel
            -STREAM{1,3}> nccl* [dur>1ms]"``; or the same of objects: ``hg.op("aten::linear"),
            "LAUNCH", hg.kernel(), hg.hop("STREAM", at_most=3), hg.kernel("nccl*")``.

        Returns
        -------
        Matches

        Raises
        ------
        QueryError
            If the text is no pattern: the error points at the character. If patterns and edges do
            not alternate, or a kind does not exist.
        TraceLimitError
            If it has too many matches: more than 10 million of three events.

        Examples
        --------
        >>> import htagraph as hg
        >>> graph = hg.load(hg.demo_trace("none")).compile()
        >>> found = graph.match("op aten::linear -LAUNCH> kernel -STREAM> kernel [dur>24.5us]")
        >>> found.frame[["op", "kernel", "kernel_2_dur_ns"]]
        op            kernel                  kernel_2_dur_ns
        aten::linear  ampere_sgemm_128x64_nn          24.8 us
        aten::linear  ampere_sgemm_128x64_nn          24.7 us
        """
        first, *more = pattern or ("",)
        chain = parse_pattern(first) if isinstance(first, str) and not more else pattern
        found = find_matches(self.dag, self._event_rows, chain, self._path_rows)
        return Matches(self.dag, self.interval, found, self.origin)

    def sql(self, query: str) -> pd.DataFrame:
        """Answer to a query in SQL over the tables of the window, through DuckDB.

        Views, which can only be read: ``events``, ``edges``, ``segments`` (of the critical path),
        ``steps``, ``kernels`` (`kernel_durations`), ``launches`` (`launch_stats`) and
        ``collectives``. Their columns are those of the tables and answers of these names.

        Parameters
        ----------
        query : str
            One SELECT, WITH or EXPLAIN.

        Raises
        ------
        QueryError
            If it is no such statement, names what does not exist, reaches for anything but the
            views, takes more than a minute or 1 GB, or has more than 5 million rows.
        MissingEventsError
            If DuckDB is not installed.

        Examples
        --------
        >>> import htagraph as hg
        >>> graph = hg.load(hg.demo_trace("none")).compile()
        >>> graph.sql("SELECT kind, count(*) AS n FROM events GROUP BY 1 ORDER BY 2 LIMIT 2")
        kind    n
        span    1
        memcpy  3
        """
        from htagraph.lookup.sql import VIEWS, answer_sql  # noqa: PLC0415  deferred: an extra
        from htagraph.writers.answer import Answer  # noqa: PLC0415  deferred: loads pandas

        return Answer(answer_sql(query, VIEWS, self.sql_view))

    def sql_view(self, view: str) -> pd.DataFrame:
        """The table behind a view of `sql`, of the window; in ``events`` texts are categories."""
        if view == "events":
            from htagraph.lookup.sql import event_table  # noqa: PLC0415  as above

            return event_table(self.dag, self._event_rows)
        if view == "edges":
            return edge_frame(self.dag, self._edge_rows)
        if view == "segments":
            return self.critical_path().segments
        if view == "steps":
            steps, window = self.steps, self.interval
            ends_ns = steps["start_ns"] + steps["dur_ns"]
            return steps[(steps["start_ns"] < window.end_ns) & (ends_ns > window.start_ns)]
        return self._ask(
            {"kernels": "kernel_durations", "launches": "launch_stats"}.get(view, view)
        )

    def _path_rows(self) -> I64:
        """Events of the critical path; -1 where a segment has none."""
        return self.critical_path().segments["event"].to_numpy()

    def critical_path(self) -> CriticalPath:
        """The critical path of the window: segments that tile it, each waits for the one before."""
        return CriticalPath(self.dag, self.interval, self.rank, self.origin)

    def why(
        self,
        what: str | re.Pattern[str] | int | None = None,
        *,
        instance: int | None = None,
        at_ns: int | None = None,
        device: int | None = None,
        end: bool = False,
        depth: int | None = None,
    ) -> Why:
        """Why an event started only then: what it waited for, back to the start of its step.

        Parameters
        ----------
        what : str, re.Pattern or int, optional
            Name, glob or regex of an event of the window, or its row; a time from the start of the
            trace (``"12.3ms"``), as `at_ns`. By default the end of the window, whose chain is its
            critical path.
        instance : int, optional
            Which of several events with this name, in order of time; negative from the end. By
            default the first, with a warning.
        at_ns : int, optional, unit=ns
            A time, as in `events`: why is the device idle here? The chain leads to the work that
            runs then, or comes next.
        device : int, optional
            With a time, which device; any by default.
        end : bool, default=False
            Why it ended only then.
        depth : int, optional
            Edges to go back; by default, to the start of the step, else of the window.

        Returns
        -------
        Why

        Raises
        ------
        QueryError
            If there is no such event.

        Warns
        -----
        AmbiguousWindowWarning
            If several events match, and `instance` does not say which.

        Examples
        --------
        >>> import htagraph as hg
        >>> graph = hg.load(hg.demo_trace("sync_in_loop")).compile()
        >>> found = graph.why("*gemm*", instance=-1)
        >>> int(found.chain["dur_ns"].sum()) == found.dur_ns
        True
        """
        dag, window = self.dag, self.interval
        if isinstance(what, str) and (after_ns := moment_in(what)) is not None:
            what, at_ns = None, dag.span.start_ns + after_ns
        if what is not None and at_ns is not None:
            raise QueryError("an event and a time are asked for.", hint="give one of them.")
        if depth is not None and depth < 1:
            raise QueryError(
                f"depth={depth} is no number of edges.", hint="depth=1 is the last edge."
            )
        event = -1
        if what is not None:
            event = find_event(dag, window, what, instance=instance)
        elif at_ns is not None:
            event = next_work(dag, at_ns, device)
        if event >= 0:
            window = chain_window(dag, window, 2 * event + end)
        if depth is not None:
            window = since_edge(dag, window, depth)
        return Why(dag, window, self.rank, self.origin, at_ns)

    def _ask(self, question: str, **options: Any) -> pd.DataFrame:  # noqa: ANN401
        """Answer for the window."""
        check_options(type(self), question, options)
        if question in ARGS_READERS:
            options["args"] = self._args
        frame = question_of(question)(self.dag, self.interval, **options)
        if question != "damage":
            frame.attrs["notes"] = self._damage
        return answer_of(frame, schema_of(question), options.get("by"))

    @cached_property
    def _damage(self) -> tuple[str, ...]:
        """What of the window is damaged, worst first: below every answer."""
        from htagraph.lookup.damage import damage_of  # noqa: PLC0415  deferred: not for a path

        return damage_in_words(damage_of(self.dag, self.interval))[:_N_DAMAGED]

    def _args(self, events: I64) -> Sequence[Mapping[str, Any]]:
        """The ``args`` of events, from the original."""
        if self.origin is None or self.origin.args is None:
            raise MissingEventsError(
                "the graph does not keep the args of events.",
                missing="args",
                hint="load the trace and compile it.",
            )
        return self.origin.args.decode(events)

    def save(self, out: str | Path) -> Path:
        """Write the compiled graph of the whole trace to one file, for `open`.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        return write_arrays(out, pack(self.dag, rank=self.rank, origin=self.origin))

    @classmethod
    def open(cls, path: str | Path) -> TraceGraph:
        """Open a saved graph; nothing in the file is executed.

        Raises
        ------
        TraceFormatError
            If the file is no saved graph, or was saved by another version.
        """
        from htagraph.readers.graph_file import read_graph  # noqa: PLC0415  deferred: few need it

        dag, rank, origin = read_graph(path)
        return cls(dag, None, rank, origin)

    def to_rustworkx(self) -> PyDiGraph:
        """The window's graph with one source and one sink as a rustworkx graph.

        Nodes carry a tuple of ``event``, ``name``, ``kind``, ``at`` (``"start"`` or ``"end"``) and
        ``ts_ns``; the last two are the source and the sink. Edges carry a dict of ``edge``,
        ``kind``, ``lag_ns`` and ``residual_ns``; the longest path over ``lag_ns + residual_ns`` is
        as long as the window.

        Notes
        -----
        About 2 us per edge: take a window of a large trace.

        Examples
        --------
        >>> import htagraph as hg
        >>> graph = hg.load(hg.demo_trace("none")).compile().window("median").to_rustworkx()
        >>> graph[0]
        Node(event=..., name='ProfilerStep#0', kind='annotation', at='end', ts_ns=...)
        """
        from htagraph.arrays.rustworkx_graphs import Node, nodes_of, to_rustworkx  # noqa: PLC0415

        nodes, tail, head, columns = windowed_edges(self.dag, self.interval)
        at = np.array(["start", "end"], dtype=object)[nodes & 1]
        ends = (
            Node(-1, name, "", "", ts_ns)
            for name, ts_ns in (("source", self.interval.start_ns), ("sink", self.interval.end_ns))
        )
        columns["kind"] = np.array(EdgeKind.labels(), dtype=object)[columns["kind"]]
        return to_rustworkx(
            tail,
            head,
            chain(nodes_of(self.dag.events, nodes >> 1, at.tolist()), ends),
            {name: column.tolist() for name, column in columns.items()},
        )

    def to_dot(
        self, out: str | Path | None = None, *, max_nodes: int = 300, reduce: bool = False
    ) -> str:
        """The window's graph as DOT, the critical path marked; write it if a file is given.

        Edges that cross the bounds of the window are left out.

        Parameters
        ----------
        out : str or Path, optional
        max_nodes : int, default=300
        reduce : bool, default=False
            Leave out redundant arrows (transitive reduction), such as those from the launch of a
            CUDA graph to all but its first kernels; arrows of the path stay.

        Raises
        ------
        QueryError
            If the window has more nodes; the hint says how to narrow it.
        OutputError
            If the file cannot be written.
        """
        from htagraph.writers.dot import graph_dot  # noqa: PLC0415  deferred: few need it

        path = self.critical_path()
        times, edges = self.dag.events.node_ts_ns, self.dag.edges
        inside = (times[edges.tail] >= self.interval.start_ns) & (
            times[edges.head] <= self.interval.end_ns
        )
        return graph_dot(
            self.dag,
            np.flatnonzero(inside),
            tracks=partial(track_labels, self.dag),
            critical=path.edges["edge"].to_numpy(),
            reduce=reduce,
            out=out,
            max_nodes=max_nodes,
            title=self.interval.name,
        )

    def opportunities(self) -> pd.DataFrame:
        """Changes that would make the window shorter, each with its predicted saving.

        The graph is replayed with each change; `what_if` replays others.
        """
        answer = super().opportunities()
        answer.attrs["notes"] = (
            f"Of {self.critical_path().window_name} ({human_duration(self.dur_ns)}).",
            *answer.attrs.get("notes", ()),
        )
        return answer

    def verdict(self) -> Verdict:
        """What limits the window, its cost, and what to try: the causes of its critical path.

        Returns
        -------
        Verdict
            Withheld if too much of the path is unknown waits.

        Examples
        --------
        >>> import htagraph as hg
        >>> hg.load(hg.demo_trace("dataloader")).compile().verdict().findings[0].title
        'Data loading'
        """
        from htagraph.findings.window_bounds import find_bounds  # noqa: PLC0415  deferred: large

        return find_bounds(self.critical_path())

    def __repr__(self) -> str:
        """Summary in one line."""
        steps = human_count(self.n_steps or len(self.steps), "step")
        name = "" if self.asked in (None, self.dag.span) else self.asked.name
        where = f"{name}, " if name not in ("", steps) else ""
        return (
            f"TraceGraph(rank={self.rank}, {where}{human_count(len(self._event_rows), 'event')}, "
            f"{human_count(len(self._edge_rows), 'edge')}, {steps}, {human_duration(self.dur_ns)})"
        )

    def _repr_html_(self) -> str:
        """Edges of each kind, for a notebook."""
        kinds = self.kinds()
        rows = [
            (in_words(kind), rule, f"{n:,}", f"{share:.1%} of the path" if share else "")
            for kind, rule, n, share in zip(
                *(kinds[name].tolist() for name in ("kind", "rule", "n", "path_share")), strict=True
            )
        ]
        return table_html(rows, title=repr(self))
