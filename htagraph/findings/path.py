"""CriticalPath: why a window took as long as it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import take
from htagraph.errors import MissingEventsError, QueryError, one_of
from htagraph.explain.breakdown import label_sums, split_by_steps, sum_by
from htagraph.explain.critical_path import path_edges, path_parts, path_segments
from htagraph.explain.segments import LABELS, Segments, segment_frame, segment_labels
from htagraph.lookup.done_steps import DoneSteps, done_steps
from htagraph.lookup.windowed import edge_frame
from htagraph.model.arrays import I8, I64
from htagraph.model.dag import Dag
from htagraph.model.frames import ATTRIBUTED_TIME, BREAKDOWN, EDGES, FLAME, SEGMENTS
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.labels import track_name
from htagraph.model.recording import Origin
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.readers.byte_stream import first_bytes
from htagraph.readers.storage import file_of
from htagraph.writers.answering import answers

if TYPE_CHECKING:
    from htagraph.explain.segment_pieces import Attributed
    from htagraph.explain.stacks import Stacks
    from htagraph.replay.excerpt import Excerpt
    from htagraph.replay.predictions import Trials
    from htagraph.replay.rehearsal import Rehearsal
    from htagraph.writers.path_outline import Outline
    from htagraph.writers.path_tracks import DrawnPath

BreakdownKey = Literal["bound", "kind", "name", "op", "track", "rule", "step"]
"""Groups for the time of a path."""

_LABELS_OF_TABLES = ("bound", "kind", "name", "rule")
"""Labels whose codes are those of the tables: the same in every part of a path."""

_TOP = 3
"""Chosen: bounds in the line that represents a path."""
_SHOWN_SHARE = 0.005
"""Least share of a bound in that line: it rounds to 1%."""
_JSON_STARTS_WITHIN = 64
"""Chosen: bytes of a file in which its first bracket, after white space, shows that it is JSON."""
_ABOUT = (
    "Segments tile the window: each instant belongs to exactly one. Each segment is what the next "
    "one had to wait for."
)


@dataclass(frozen=True, repr=False)
class CriticalPath:
    """The critical path of a window: segments that tile it.

    Parameters
    ----------
    dag : Dag
    window : Window
    rank : int
    origin : Origin, optional
        The file that the trace was read from, for `to_chrome_json`.

    Examples
    --------
    >>> from htagraph import Trace, synth
    >>> graph = Trace.from_events(synth.timeline('''
    ...     cpu 1    |[launch >a]   [sync           ]
    ...     stream 7 |     [kernel <a          ]
    ... ''')).compile()
    >>> path = graph.critical_path()
    >>> path.dur_ns == graph.dur_ns == int(path.segments["dur_ns"].sum())
    True
    """

    dag: Dag
    window: Window
    rank: int = 0
    origin: Origin | None = None

    @property
    def dur_ns(self) -> int:
        """Length of the path, which is the length of the window."""
        return self.window.dur_ns

    @property
    def n_steps(self) -> int:
        """Whole steps that the window consists of, 0 if it is not made of steps."""
        return self.window.n_steps

    @property
    def step_ns(self) -> float:
        """Step time: the mean length of these steps; 0 if there are none."""
        return self.window.step_ns

    @property
    def window_name(self) -> str:
        """Name of the window, in a sentence."""
        return "the whole trace" if self.window == self.dag.span else self.window.name

    @cached_property
    @answers(SEGMENTS)
    def segments(self) -> pd.DataFrame:
        """Segments in order of time, schema `frames.SEGMENTS`; they tile the window."""
        return segment_frame(self.dag, self.coded)

    def segments_at(self, rows: I64) -> pd.DataFrame:
        """Some of the segments, indexed by their rows."""
        return segment_frame(self.dag, take(self.coded, rows)).set_index(pd.Index(rows))

    @cached_property
    def coded(self) -> Segments:
        """Segments in codes, which suffice for sums."""
        return path_segments(self.dag, [self.window])

    @cached_property
    def stacks(self) -> Stacks:
        """What each part of the path belongs to."""
        from htagraph.explain.stacks import path_stacks  # noqa: PLC0415  deferred: few need it

        return path_stacks(self.dag, self.coded)

    @property
    def bounds(self) -> I8:
        """Code of the `Bound` of each segment."""
        return self.coded.bound

    @property
    def durations_ns(self) -> I64:
        """Length of each segment."""
        return self.coded.dur_ns

    @property
    def n_segments(self) -> int:
        """Number of segments."""
        return len(self.coded.start_ns)

    @cached_property
    @answers(EDGES)
    def edges(self) -> pd.DataFrame:
        """Edges of the path, earliest first, schema `frames.EDGES`.

        The first and the last may reach beyond the window.
        """
        return edge_frame(self.dag, path_edges(self.dag, self.window))

    @cached_property
    @answers(ATTRIBUTED_TIME)
    def attributed_time(self) -> pd.DataFrame:
        """The path, each nanosecond charged to one cause; schema `frames.ATTRIBUTED_TIME`."""
        return self.attributed.frame()

    @cached_property
    def attributed_labels(self) -> pd.DataFrame:
        """`attributed_time` with categories instead of texts: much less memory and time."""
        return self.attributed.labels()

    @cached_property
    def attributed(self) -> Attributed:
        """`attributed_time` in codes."""
        from htagraph.explain.attributed_time import attributed  # noqa: PLC0415  deferred

        return attributed(self.dag, self.coded)

    @cached_property
    def excerpt(self) -> Excerpt:
        """Part of the trace that predictions replay; of a large graph, typical steps."""
        from htagraph.replay.excerpt import excerpt_of  # noqa: PLC0415  deferred: few need it

        return excerpt_of(self.dag, self.window)

    @cached_property
    def trials(self) -> Trials[Rehearsal]:
        """Changes to `excerpt`, each replayed once, when it is asked for."""
        from htagraph.queries.cost import (  # noqa: PLC0415  deferred: large
            trials_of,
            trials_on,
        )

        if self.excerpt.n_steps:
            return trials_of(self.excerpt)
        return trials_on(self.dag, self.window, self.coded, self.attributed)

    @property
    def unknown_share(self) -> float:
        """Share of the path whose wait no dependency explains."""
        unexplained = self.coded.dur_ns[self.coded.bound == Bound.UNKNOWN_WAITS].sum()
        return float(unexplained) / self.dur_ns if self.dur_ns else 0.0

    @property
    def inferred_share(self) -> float:
        """Share of the path on edges that are inferred from order and times of events."""
        inferred = self.coded.dur_ns[self.coded.is_inferred(self.dag)].sum()
        return float(inferred) / self.dur_ns if self.dur_ns else 0.0

    @answers(BREAKDOWN)
    def breakdown(self, *, by: BreakdownKey = "bound") -> pd.DataFrame:
        """Time of the path by group; it adds up to the window.

        Parameters
        ----------
        by : {"bound", "kind", "name", "op", "track", "rule", "step"}
            ``step`` cuts the path where steps are done; the rest is ``(outside steps)``.

        Returns
        -------
        DataFrame, schema `frames.BREAKDOWN`, indexed by group
            The largest group first; steps in order of time.

        Raises
        ------
        QueryError
            If `by` is none of these.
        MissingEventsError
            If steps are asked for and the trace has none.
        """
        if by in LABELS:
            sums = self.sums(by=by)
            groups = pd.Index(sums.pop(by), dtype=object, name=by)
            return pd.DataFrame(sums, index=groups)[list(BREAKDOWN.columns)]
        if by != "step":
            raise QueryError(
                f"a path cannot be broken down by {by!r}.",
                hint=one_of(by, (*LABELS, "step"), "by"),
            )
        if not len(self.steps.names):
            raise MissingEventsError(
                "the trace has no steps.",
                missing="steps",
                hint="call profiler.step(), or break down by 'bound'.",
            )
        return sum_by(self.pieces, "step", self.dur_ns, BREAKDOWN, sort=False)

    def sums(self, *, by: BreakdownKey = "bound") -> dict[str, npt.NDArray[Any]]:
        """Columns of a `breakdown` by a label as arrays, without pandas.

        Returns
        -------
        dict of str to ndarray
            The labels, under the name `by`, and the columns of `frames.BREAKDOWN`.
        """
        if by not in self._sums:
            is_coded = "coded" in vars(self) or by not in _LABELS_OF_TABLES
            parts = (self.coded,) if is_coded else path_parts(self.dag, self.window)
            labelled = ((*segment_labels(self.dag, part, by), part.dur_ns) for part in parts)
            self._sums[by] = label_sums(labelled, by, self.dur_ns)
        return dict(self._sums[by])

    @cached_property
    def _sums(self) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """What `sums` has found, by label."""
        return {}

    @answers(FLAME)
    def flame(self, out: str | Path | None = None) -> pd.DataFrame:
        """Time of the path by stack and bound, most first; it adds up to the window.

        A stack has the Python frames, ranges and operators around each instant, the outermost
        first; without frames, only the others.

        Parameters
        ----------
        out : str or Path, optional
            File to write as well: ``.speedscope.json`` (https://www.speedscope.app), or else lines
            for flamegraph.pl; ``.gz`` to compress.

        Raises
        ------
        OutputError
            If the file cannot be written.

        Examples
        --------
        >>> import htagraph as hg
        >>> path = hg.load(hg.demo_trace("small_kernels")).compile().critical_path()
        >>> bool(path.flame()["dur_ns"].sum() == path.dur_ns)
        True
        """
        from htagraph.writers.flame import write_flame  # noqa: PLC0415  deferred: few need it

        found = self.stacks.flame()
        if out is not None:
            write_flame(out, found, f"Critical path of {self.window_name}")
        return found

    @cached_property
    def steps(self) -> DoneSteps:
        """The steps of the trace, each from when the one before was done until it is done."""
        return done_steps(self.dag)

    @property
    def pieces(self) -> pd.DataFrame:
        """Segments cut where steps are done; see `split_by_steps`."""
        return split_by_steps(self.coded.start_ns, self.coded.dur_ns, self.steps.frame)

    @property
    def start_ns(self) -> int:
        """Start of the window."""
        return self.window.start_ns

    @property
    def end_ns(self) -> int:
        """End of the window."""
        return self.window.end_ns

    @property
    def origin_ns(self) -> int:
        """Time 0 of the file that `to_perfetto` writes: the first event of the trace."""
        return int(self.dag.events.ts_ns.min(initial=self.window.start_ns))

    def to_perfetto(
        self,
        out: str | Path,
        *,
        findings: Mapping[str, str] | None = None,
        tracks: Mapping[str, pd.DataFrame] | None = None,
        edges: Literal["work", "all"] = "work",
    ) -> Path:
        """Write the whole trace with its findings and path on top, for https://ui.perfetto.dev.

        Segments are named by their bound and event; cause, rule and evidence are arguments. Device
        times are shifted by ``dag.clock_shift_ns`` if the clocks disagreed.

        Parameters
        ----------
        out : str or Path
            ``.pftrace``, or ``.pftrace.gz`` to compress.
        findings : mapping of str to str, optional
            Title of each cause, and arguments on further lines as ``name: text``, such as
            `Verdict.by_cause`. ``htagraph view`` opens the file at the first.
        tracks : mapping of str to DataFrame, optional
            Answers about this trace to draw below the path, by the name of their track: each row
            from its ``start_ns`` or ``ts_ns``, for ``dur_ns``, with the first of its names.
        edges : {"work", "all"}
            Arrows from launches to their work and between threads, or also of all other edges of
            the window. An edge to the end of what began before, such as a call that waited, has
            none: viewers would draw it backward.

        Raises
        ------
        OutputError
            If the file cannot be written.
        QueryError
            If the rows of an answer have no time or no name, or there are too many edges.

        Examples
        --------
        >>> import tempfile
        >>> import htagraph as hg
        >>> graph = hg.load(hg.demo_trace("small_kernels")).compile()
        >>> often = graph.kernel_patterns(rank_by="n_occurrences", top=5, by="occurrence")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     out = f"{folder}/patterns.pftrace"
        ...     graph.critical_path().to_perfetto(out, tracks={"patterns": often}).name
        'patterns.pftrace'
        """
        return write_path_trace(self, out, findings=findings, tracks=tracks, edges=edges)

    def drawn(
        self, findings: Mapping[str, str], tracks: Mapping[str, pd.DataFrame] | None = None
    ) -> DrawnPath:
        """What `to_perfetto` draws on top of the trace."""
        from htagraph.explain.segments import main_causes, with_causes  # noqa: PLC0415
        from htagraph.writers.path_tracks import DrawnPath  # noqa: PLC0415  deferred: few need it

        moved_by, charged = self.dag.calibration.moved_by, self.attributed_labels
        moved = f" Device times are shifted by {moved_by} to match the host clock."
        return DrawnPath(
            with_causes(self.segments, charged),
            main_causes(charged),
            findings,
            f"Critical path of {self.window_name}. {_ABOUT}{moved if moved_by else ''}",
            answers=tracks or {},
        )

    def to_chrome_json(self, out: str | Path) -> Path:
        """Write the original trace, byte for byte, with the critical path added as events.

        Parameters
        ----------
        out : str or Path
            ``.json``, or ``.json.gz`` to compress.

        Raises
        ------
        MissingEventsError
            If the trace was not loaded from a JSON file.
        OutputError
            If the file cannot be written.
        """
        if self.origin is None:
            raise MissingEventsError(
                "there is no original file to add the path to.",
                missing="file",
                hint="write a Perfetto trace with to_perfetto().",
            )
        source = self.origin.source
        file = source if isinstance(source, bytes) else file_of(source)
        head = first_bytes(file, _JSON_STARTS_WITHIN).lstrip(b"\xef\xbb\xbf \t\r\n")
        if head and head[:1] not in {b"{", b"["}:
            raise MissingEventsError(
                "the original is not JSON, so events cannot be added to it.",
                missing="file",
                path=self.origin.path,
                hint="write a Perfetto trace with to_perfetto().",
            )
        from htagraph.writers.chrome_json import write_chrome_json  # noqa: PLC0415  deferred

        return write_chrome_json(
            out,
            source,
            events=self.dag.events,
            segments=self.segments,
            base_time_ns=self.origin.base_time_ns,
            clock_shift_ns=self.dag.clock_shift_ns,
        )

    def to_dot(self, out: str | Path | None = None) -> str:
        """Path as a DOT graph of one slide, written to a file if one is given.

        A box per bound, with the longest of its names, their time and share. Arrows count how
        often the path passes from one to another.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        from htagraph.writers.dot import path_dot  # noqa: PLC0415  deferred: few need it

        return path_dot(self.outline, out=out, title=f"Critical path of {self.window_name}")

    @cached_property
    def outline(self) -> Outline:
        """What `to_dot` draws."""
        from htagraph.writers.path_outline import Column, path_outline  # noqa: PLC0415  deferred

        track, name, (kind, _) = (
            segment_labels(self.dag, self.coded, label) for label in ("track", "name", "kind")
        )
        lane = Column(track[0], [track_name(text) for text in track[1]])
        return path_outline(lane, self.bounds, Column(*name), kind, self.durations_ns)

    def __repr__(self) -> str:
        sums = self.sums()
        shares = zip(sums["bound"][:_TOP], sums["share"], strict=False)
        top = [(name, share) for name, share in shares if share >= _SHOWN_SHARE]
        bounds = ", ".join(f"{bound_in_words(name)} {share:.0%}" for name, share in top)
        each = f"{human_duration(self.step_ns)} a step, " if self.n_steps > 1 else ""
        return (
            f"CriticalPath({self.window.name}, {human_duration(self.dur_ns)}, {each}"
            f"{human_count(int(sums['n_segments'].sum()), 'segment')}: {bounds or 'nothing'})"
        )

    def _repr_html_(self) -> str:
        """The path by bound, for a notebook."""
        from htagraph.writers.notebook_cell import path_html  # noqa: PLC0415  deferred

        title = f"Critical path of {self.window_name} ({human_duration(self.dur_ns)})"
        return path_html(title, self.breakdown())


def write_path_trace(
    path: CriticalPath,
    out: str | Path,
    *,
    findings: Mapping[str, str] | None = None,
    tracks: Mapping[str, pd.DataFrame] | None = None,
    edges: Literal["work", "all"] = "work",
    run: str = "",
    place: int | None = None,
    origin_ns: int | None = None,
    taken: set[int] | None = None,
) -> Path:
    """Write a trace with its critical path on top; of several runs, the named one.

    Arguments are those of `CriticalPath.to_perfetto` and of `write_pftrace`: files of several runs
    can be concatenated.
    """
    from htagraph.explain.counter_tracks import (  # noqa: PLC0415  deferred
        counter_tracks,
        roof_arguments,
    )
    from htagraph.lookup.windowed import edge_arrows, work_links  # noqa: PLC0415
    from htagraph.model.perfetto_fields import recorded_facts  # noqa: PLC0415
    from htagraph.writers.pftrace import write_pftrace  # noqa: PLC0415

    dag, events = path.dag, path.segments["event"].to_numpy()
    links = np.stack(work_links(dag))
    if edges == "all":
        arrows, _ = edge_arrows(dag, path.window)
        links = np.unique(np.concatenate([links, arrows], axis=1), axis=1)
    return write_pftrace(
        out,
        dag.events,
        rank=None if run else path.rank,
        path=path.drawn(findings or {}, tracks),
        links=(links[0], links[1]),
        critical_events=events[events >= 0],
        computed=roof_arguments(dag),
        counters=counter_tracks(dag),
        run=run,
        place=place,
        origin_ns=path.origin_ns if origin_ns is None else origin_ns,
        taken=taken,
        recorded=recorded_facts(dag, path.rank, path.origin, run),
        recorded_ns=(dag.recorded_ns, dag.events.dur_ns),
    )


def write_runs(out: str | Path, runs: Mapping[str, CriticalPath], origins: Sequence[int]) -> Path:
    """Write several runs into one trace, the first on top, each named and with a critical path.

    `origins`: time of each run that is 0 in the file.
    """
    from htagraph.writers.output_file import write_joined  # noqa: PLC0415  deferred: few need it

    taken: set[int] = set()
    places = zip(runs.items(), origins, strict=True)
    parts = [
        partial(write_path_trace, path, run=run, place=place, origin_ns=origin_ns, taken=taken)
        for place, ((run, path), origin_ns) in enumerate(places, start=1)
    ]
    return write_joined(out, parts)
