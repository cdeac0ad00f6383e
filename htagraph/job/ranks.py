"""The ranks of a job: a summary of each, and requests to their graphs.

Compiled graphs stay in files of a cache folder; only small tables travel to this process, which
grows with the collectives of a job, not with its events. Opening a rank costs far more than one
more request, so a visit makes several at once, and their answers are kept.
"""

from __future__ import annotations

import traceback
import warnings
import zlib
from collections.abc import Callable, Collection, ItemsView, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.errors import (
    HTAGraphError,
    IncompleteTraceWarning,
    OutputError,
    QueryError,
    RankFailedError,
    RankNotFoundError,
    WindowNotFoundError,
)
from htagraph.explain.critical_path import last_node
from htagraph.explain.default_window import may_open_long
from htagraph.findings.context import Context, find_context
from htagraph.job.executors import Task, Workers, failure_in_words
from htagraph.job.groups import (
    ProcessGroup,
    exchanges_of,
    in_process_groups,
    process_groups,
    recorded_peers,
)
from htagraph.job.pipeline_actions import RankActions, device_actions, rank_actions
from htagraph.job.rank_segments import RankEnds
from htagraph.job.windows import (
    AfterOpening,
    KeptSteps,
    LastSteps,
    RankSteps,
    StepStart,
    step_starts,
    table_since,
)
from htagraph.lookup.collectives import Readiness, first_anchor, readiness
from htagraph.lookup.damage import damage_of
from htagraph.lookup.done_steps import DoneSteps, done_steps
from htagraph.lookup.find_window import (
    FIRST,
    LAST,
    MEDIAN,
    WHOLE,
    annotations_like_words,
    is_step_word,
    numbered_steps,
    times_in,
    warn_of_others,
)
from htagraph.lookup.steady_steps import steady_steps
from htagraph.model.archive import Arrays
from htagraph.model.arrays import I64, brief
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.recording import Damage
from htagraph.model.symbols import compile_pattern
from htagraph.model.units import human_count
from htagraph.model.window import Window
from htagraph.readers.kineto.header import base_time_of
from htagraph.run.cache import Entry
from htagraph.run.compiled import LoadOptions, opened, packed
from htagraph.run.graph import TraceGraph
from htagraph.writers.output_file import OwnFolder


class RankStep(NamedTuple):
    """A step of every rank: the first (0) or the last (-1) of its name."""

    name: str
    instance: int

    def __str__(self) -> str:
        return self.name


WindowName = str | RankStep | RankSteps | LastSteps | AfterOpening | tuple[int, int] | None
"""A window of every rank: the name of a host range, a step, steps, what is late, times, or all."""

Work = Callable[[TraceGraph], Any]
"""A function of the graph of a rank, which can be pickled for another process."""

OnError = Literal["raise", "skip"]
"""Whether a rank that cannot be used ends the work, or is left out."""


_Files = tuple[Entry, Path, tuple[Path, ...]]
"""A rank's compiled graph, its trace, and the files of other instruments."""


@dataclass(frozen=True, repr=False)
class RankSummary:
    """All that is known of a rank without opening its graph."""

    rank: int
    rank_source: str  # Where the number of the rank was found
    path: Path
    beside: tuple[Path, ...]  # Files of other instruments that were added
    graph: Entry
    world_size: int | None
    host: str  # Empty where not recorded
    n_events: int
    called_like_words: tuple[str, ...]  # Annotations named like words for a window: ``last``, ``5``
    alike_ns: Mapping[str, int]  # Lengths of the typical steps, by name
    has_unread_stacks: bool
    context: Context
    first_ns: int  # First time in the trace, including events that are not work
    collectives: pd.DataFrame
    ready: Readiness  # When each of the collectives was
    ends: RankEnds  # Of the whole trace
    device_names: tuple[str, ...]
    starts: tuple[StepStart, ...]
    done: DoneSteps
    done_ends: tuple[RankEnds, ...]  # The same steps as windows
    may_open_long: bool  # Work from before the profile may limit it for long
    base_ns: int  # Time that is 0 in the file; 0 where not recorded
    damage: tuple[Damage, ...]  # Of the whole trace
    content: int  # Checksum of threads and of the times of all events
    pipeline: RankActions | None  # What it did for a pipeline
    exchanges: pd.DataFrame  # Sizes of all-to-alls in both directions, `exchanges_of`
    groups: tuple[ProcessGroup, ...]
    # First collectives that are not in the table, and the number of their steps
    n_left_out: int = 0
    n_steps_left_out: int = 0

    def since(self, place: int) -> RankSummary:
        """The summary from one of its steps on."""
        begin = self.starts[place]
        first = begin.collective
        table, ready = table_since(self.collectives, self.ready, first)
        kept = [one._replace(collective=one.collective - first) for one in self.starts[place:]]
        names = {one.name for one in kept}
        return replace(
            self,
            collectives=table,
            ready=ready,
            ends=replace(self.ends.later(first), start_ns=max(self.ends.start_ns, begin.start_ns)),
            alike_ns={name: dur_ns for name, dur_ns in self.alike_ns.items() if name in names},
            starts=tuple(kept),
            done=self.done.since(place),
            done_ends=tuple(one.later(first) for one in self.done_ends[place:]),
            n_left_out=self.n_left_out + first,
            n_steps_left_out=self.n_steps_left_out + place,
            pipeline=self.pipeline.since(place) if self.pipeline else None,
        )

    def __repr__(self) -> str:
        return f"RankSummary(rank={self.rank}, {human_count(self.n_events, 'event')})"

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps, in order."""
        return tuple(one.name for one in self.starts)

    def ends_of(self, steps: RankSteps) -> RankEnds:
        """Where some steps begin and end; the whole trace if it has no such steps."""
        some = steps.rows(self.done)
        if some is None:
            return self.ends
        last: RankEnds = self.done_ends[some.stop - 1]
        return replace(last, start_ns=int(self.done.start_ns[some.start]))

    @property
    def files(self) -> _Files:
        """The part of the summary that a worker needs to open the rank."""
        return self.graph, self.path, self.beside


def rank_ends(graph: TraceGraph) -> RankEnds:
    """Where a window's path on one rank begins and ends."""
    dag = graph.dag
    kernels = TraceGraph(dag, dag.span).collectives()["event"].to_numpy(np.int64)
    return _ends_of(dag, [graph.interval], kernels)[0]


def _ends_of(dag: Dag, windows: Sequence[Window], kernels: I64) -> tuple[RankEnds, ...]:
    """Where the paths of some windows of a rank begin and end; `kernels` are its collectives."""
    nodes = np.array([last_node(dag, window) for window in windows], dtype=np.int64)
    place = np.full(len(dag.events), -1, dtype=np.int64)
    place[kernels] = np.arange(len(kernels))
    after = gather(place, gather(first_anchor(dag, kernels), nodes, -1) >> 1, -1).tolist()
    return tuple(
        RankEnds(window.start_ns, window.end_ns, *ends)
        for window, *ends in zip(windows, nodes.tolist(), after, strict=True)
    )


def prepare_rank(
    path: Path,
    beside: tuple[Path, ...],
    graph_file: Entry,
    reading: LoadOptions,
    most_collectives: int | None = None,
) -> RankSummary:
    """Load, compile and save one rank, or open the kept graph; return its summary."""
    kept = _on_this_machine(graph_file)
    found = opened(kept, path)
    if found is None:
        found = reading.made(path, beside)
        with suppress(OutputError):  # each visit then compiles again
            kept.write(packed(found))
    trace, graph = found
    graph = graph.window(WHOLE)
    collectives = graph.collectives()
    kernels = collectives["event"].to_numpy(np.int64)
    steady = steady_steps(graph.dag)
    done = done_steps(graph.dag, steady)
    steps = [done.window(slice(row, row + 1)) for row in range(len(done.names))]
    ends, *done_ends = _ends_of(graph.dag, [graph.dag.span, *steps], kernels)
    grouped = in_process_groups(
        collectives, trace.metadata, trace.rank, recorded_peers(graph.dag, collectives)
    )
    summary = RankSummary(
        rank=trace.rank,
        rank_source=trace.rank_source,
        path=path,
        beside=beside,
        graph=graph_file,
        world_size=trace.world_size,
        host=str(trace.metadata.get("host_name") or ""),
        n_events=len(graph.dag.events),
        called_like_words=annotations_like_words(graph.dag),
        alike_ns=steady.lengths_ns(graph.dag),
        has_unread_stacks=trace.has_unread_stacks,
        context=find_context(graph.dag, graph.dag.span),
        first_ns=int(graph.dag.events.ts_ns.min(initial=graph.dag.span.start_ns)),
        collectives=grouped,
        ready=readiness(graph.dag, kernels),
        ends=ends,
        device_names=graph.dag.events.device_names,
        starts=step_starts(graph, kernels),
        done=done,
        done_ends=tuple(done_ends),
        may_open_long=may_open_long(graph.dag),
        damage=tuple(damage_of(graph.dag, graph.dag.span)),
        content=_content(graph.dag.events),
        base_ns=base_time_of(trace.metadata),
        pipeline=rank_actions(graph) or device_actions(graph.dag, grouped),
        exchanges=exchanges_of(graph.dag, collectives),
        groups=process_groups(
            graph.dag, grouped, trace.metadata, trace.rank, trace.world_size or 0
        ),
    )
    if most_collectives is None or len(kernels) <= most_collectives or not summary.starts:
        return summary
    starts, least = summary.starts, len(kernels) - most_collectives
    fits = (place for place, one in enumerate(starts) if one.collective >= least)
    place = next(fits, len(starts) - 1)  # the last step at least
    return summary.since(place) if starts[place].collective else summary


def _content(events: EventTable) -> int:
    """Checksum of the threads and of the times of all events: no two ranks have the same."""
    threads = repr((events.lanes.pid, events.lanes.tid)).encode()
    return zlib.crc32(
        events.dur_ns.tobytes(), zlib.crc32(events.ts_ns.tobytes(), zlib.crc32(threads))
    )


class Request(NamedTuple):
    """Some work on a window of a rank."""

    window: WindowName
    work: Work


def _on_this_machine(graph: Entry) -> Entry:
    """Where a graph is kept: on machines that do not see the job's folder, in one of the worker."""
    folder = graph.folder
    return graph if folder.is_dir() else graph._replace(folder=_folder_of_worker(folder).path)


@lru_cache(maxsize=2)  # of the last jobs: a worker may live for weeks
def _folder_of_worker(_job: Path) -> OwnFolder:
    return OwnFolder()


def _opened(files: _Files, reading: LoadOptions) -> TraceGraph:
    """The graph of a rank: kept, or compiled where it is not; workers need not share a disk."""
    graph, trace, beside = files
    kept = _on_this_machine(graph)
    if (found := kept.read(partial(_graph, source=trace))) is not None:
        return found
    made = reading.made(trace, beside)
    with suppress(OutputError):
        kept.write(packed(made))
    return made.graph


def _graph(arrays: Arrays, source: Path) -> TraceGraph:
    from htagraph.readers.graph_file import rank_of  # noqa: PLC0415  only where kept

    dag, rank, origin = rank_of(arrays, source)
    return TraceGraph(dag, None, rank, origin)


def _in_window(graph: TraceGraph, window: WindowName) -> TraceGraph:
    if window is None:
        return graph.window(WHOLE)
    if isinstance(window, LastSteps | AfterOpening | RankSteps):
        return replace(graph, asked=window(graph))
    if isinstance(window, RankStep):
        return graph.window(window.name, instance=window.instance)
    return graph.window(window, instance=0)


def _visit(files: _Files, reading: LoadOptions, requests: Sequence[Request]) -> list[Any]:
    """Open a rank once; return the result, or the exception, of each request."""
    graph, outcomes = _opened(files, reading), []
    part = cache(partial(_in_window, graph))
    for window, work in requests:
        try:
            outcomes.append(work(part(window)))
        except HTAGraphError as exc:
            outcomes.append(exc)
        except Exception as exc:  # noqa: BLE001  whatever it is, it belongs to one rank
            exc.add_note(traceback.format_exc())  # pickling drops tracebacks
            outcomes.append(exc)
    return outcomes


class RankAnswers(dict[int, Any]):
    """The results of some work, by rank; `failed` has the reasons of ranks without one."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[int, str] = {}


@brief
@dataclass(frozen=True)
class RankGraphs:
    """The graphs of a job's ranks, and the workers that open them."""

    summaries: Mapping[int, RankSummary]  # By rank, ascending
    workers: Workers
    reading: LoadOptions = field(default_factory=LoadOptions)
    on_error: OnError = "raise"
    folder: object = None  # Keeps the folder of compiled graphs alive
    kept: KeptSteps | None = None  # Of a job with too many collectives
    _at_hand: dict[tuple[int, Request], Any] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def window(self) -> WindowName:
        """The window that is kept of the ranks; None for all."""
        return self.kept.window if self.kept else None

    def open(self, rank: int, window: WindowName = None) -> TraceGraph:
        """Open the graph of a rank, or of a window of it."""
        if rank not in self.summaries:
            raise RankNotFoundError(rank, self.summaries)
        return _in_window(_opened(self.summaries[rank].files, self.reading), window)

    def without(self, ranks: Collection[int]) -> RankGraphs:
        """The other ranks, with their kept answers."""
        kept = {rank: one for rank, one in self.summaries.items() if rank not in ranks}
        return replace(self, summaries=kept)

    def visit(self, requests: Mapping[int, Iterable[Request]]) -> dict[int, str]:
        """Open each of some ranks once, and keep the results of its requests for `ask`.

        Returns why ranks could not be opened, or their worker died.
        """
        wanted = {
            rank: [one for one in dict.fromkeys(several) if (rank, one) not in self._at_hand]
            for rank, several in requests.items()
        }
        failed = {}
        for rank, outcomes in self._visited({r: asked for r, asked in wanted.items() if asked}):
            asked = [(rank, one) for one in wanted[rank]]
            if isinstance(outcomes, Exception):
                failed[rank] = failure_in_words(outcomes)
                self._at_hand.update(dict.fromkeys(asked, outcomes))
            else:
                self._at_hand.update(zip(asked, outcomes, strict=True))
        return failed

    def ask(
        self, requests: Mapping[int, Request], *, on_error: OnError | None = None
    ) -> RankAnswers:
        """Make a request to each of some ranks; raises what fails, unless errors are skipped."""
        at_hand = {rank: (rank, request) for rank, request in requests.items() if self._at_hand}
        known = {rank: self._at_hand[key] for rank, key in at_hand.items() if key in self._at_hand}
        unknown = {rank: [one] for rank, one in requests.items() if rank not in known}
        if unknown:
            known |= {
                rank: outcomes if isinstance(outcomes, Exception) else outcomes[0]
                for rank, outcomes in self._visited(unknown)
            }
        found = RankAnswers()
        for rank in requests:
            self._note(found, rank, known[rank], on_error or self.on_error)
        return found

    def _visited(
        self, requests: Mapping[int, Sequence[Request]]
    ) -> ItemsView[int, Sequence[Any] | Exception]:
        """The outcomes of the requests to each rank, or why it could not be opened."""
        tasks: dict[int, Task] = {
            rank: (_visit, (self.summaries[rank].files, self.reading, several))
            for rank, several in requests.items()
        }
        return self.workers.run(tasks, named="rank {}".format).items()

    @staticmethod
    def _note(found: RankAnswers, rank: int, outcome: object, on_error: OnError) -> None:
        """Note the answer of a rank; raise its error, or warn of it."""
        if not isinstance(outcome, Exception):
            found[rank] = outcome
            return
        why = failure_in_words(outcome)
        if on_error == "raise":
            hint = 'load with on_error="skip" to continue without it.'
            raise RankFailedError(why, rank=rank, hint=hint) from outcome
        found.failed[rank] = why
        message = f"rank {rank} is left out: {why}"
        # The line that calls `Job.map`.
        warnings.warn(message, IncompleteTraceWarning, stacklevel=4)


def job_window(summaries: Mapping[int, RankSummary], window: str | tuple[int, int]) -> WindowName:
    """Window of every rank that a name, a word or a pair of times stands for.

    A word stands for one step, the same on all ranks that recorded steps, unless an annotation has
    this name.
    """
    if window == WHOLE or not isinstance(window, str):
        return window
    steps = {rank: summary.steps for rank, summary in summaries.items() if summary.steps}
    if any(window in summary.called_like_words for summary in summaries.values()):
        return window
    if times_in(window) is not None:
        raise QueryError(
            "every rank has its own clock, so one pair of times does not fit all.",
            hint="name a step, or report on one rank.",
        )
    if is_step_word(window):
        return _step(summaries, steps, window)
    _warn_of_others(steps, window)
    return window


def _step(
    summaries: Mapping[int, RankSummary], steps: Mapping[int, tuple[str, ...]], word: str
) -> RankStep:
    """The step that a word stands for, on every rank."""
    if not steps:
        raise WindowNotFoundError(word, (), where="this job")
    if word == MEDIAN:
        return RankStep(_median(summaries), 0)
    place = -1 if word == LAST else 0
    named = {
        rank: names[place] if word in (FIRST, LAST) else _numbered(names, word)
        for rank, names in steps.items()
    }
    found = sorted(set(named.values()), key=list(named.values()).index)
    if len(found) == 1 and found[0]:
        return RankStep(found[0], place)
    if not any(found):
        raise WindowNotFoundError(word, next(iter(steps.values())), where="this job")
    said = "; ".join(
        f"{name or 'no such step'} on rank {listed([r for r in named if named[r] == name])}"
        for name in found
    )
    raise QueryError(
        f"ranks differ in what the {word} step is: {said}.",
        hint="name a step that all ranks recorded.",
    )


def _numbered(names: tuple[str, ...], number: str) -> str:
    """Name of the step with a number; empty if there is none."""
    return next((names[at] for at in numbered_steps(names, number)), "")


def listed(ranks: Sequence[int], most: int = 8) -> str:
    """Some ranks in words; the first `most` by number."""
    more = ", …" if len(ranks) > most else ""
    return ", ".join(map(str, ranks[:most])) + more


def _median(summaries: Mapping[int, RankSummary]) -> str:
    """The step of median length over all ranks, of the steps that are typical on each."""
    alike = [summary.alike_ns for summary in summaries.values()]
    common = [name for name in alike[0] if all(name in other for other in alike)]
    if not common:
        raise QueryError(
            "there is no median step: no step is typical on every rank.",
            hint=f"name a step, or take {FIRST} or {LAST}; steady_state shows why.",
        )
    lengths = sorted((sum(of_rank[name] for of_rank in alike), name) for name in common)
    return lengths[(len(lengths) - 1) // 2][1]


def _warn_of_others(steps: Mapping[int, tuple[str, ...]], window: str) -> None:
    """Warn if a pattern or a name fits several steps of a rank."""
    fits = compile_pattern(window)
    for rank, names in steps.items():
        found = [name for name in names if name == window] or [n for n in names if fits(n)]
        if len(found) > 1:
            taken = f"{found[0]} of rank {rank}, and so on every rank"
            warn_of_others(window, len(found), taken, stacklevel=4)
            return
