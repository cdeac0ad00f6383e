"""Stepwise: a trace larger than memory, judged in parts of some steps.

A critical path is found from its end back to its start, and so are the parts: the last is read
first. Where its path enters the part is the event that the part before ends with. So the paths of
all parts join, without gap or overlap, as if one walk had gone over the whole graph::

    part 1                  part 2                  part 3
    [... path ............][... path ............][... path ............]  end
    <--- ends with that ---<--- ends with that ---<--- found first

A part is compiled with what is around it. What a graph learns from all device work (device clock,
usual delays, recurring waits) is learned before, from as many parts as memory allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.compiler.passes import compile_events, learnt_from
from htagraph.compiler.structure import Learnt
from htagraph.errors import OutputError
from htagraph.explain.critical_path import path_edges
from htagraph.explain.default_window import default_window, ends_in_words
from htagraph.findings.context import find_context
from htagraph.findings.findings import charged
from htagraph.findings.path import BreakdownKey, CriticalPath
from htagraph.findings.verdict import Paragraph, Verdict, lines_of
from htagraph.findings.window_bounds import find_bounds, light_on, told_of
from htagraph.lookup.damage import LOST_LIMIT, damage_of, holes_in_words, lost_in_words, lost_share
from htagraph.lookup.done_steps import DoneSteps, device_work_began, done_steps
from htagraph.lookup.find_window import WHOLE
from htagraph.lookup.steady_steps import FEWEST_ALIKE
from htagraph.lookup.steps import find_steps
from htagraph.model.archive import Arrays
from htagraph.model.arrays import I64, U8
from htagraph.model.dag import Calibration, Dag
from htagraph.model.frames import BREAKDOWN
from htagraph.model.kinds import Bound
from htagraph.model.progress import Listener, begin_stage, listening
from htagraph.model.recording import HOLES, STACKS, Damage, DamageKind, damage_in_words
from htagraph.model.schema import categorical
from htagraph.model.units import human_count
from htagraph.model.window import Window
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.kineto.event_args import ArgsIndex
from htagraph.readers.kineto.header import base_time_of
from htagraph.readers.memory_need import free_bytes
from htagraph.readers.storage import path_of
from htagraph.replay.excerpt import cut_out
from htagraph.run.cache import Entry, entry_of
from htagraph.run.chunks import Chunks, Zones
from htagraph.run.compiled import LoadOptions

PART_BYTES = 256 << 20
"""Bytes of text in a part: 0.7 million events, which take 0.8 GB of memory, and three times as much
if the parts around it are read as well. Parts of half the size learn less and read more twice. A
limit of memory: test_stepwise asks for smaller parts."""

_AROUND = 1 / 8
"""What is read around a part, of its length; a step at least. Chosen: launches of the work that
runs when a part begins are in the step before. Pinned by `test_stepwise.py`."""

_N_REPLAYED = 40_000
"""Events of the steps that predictions replay: a limit of time (chosen)."""

_EVENLY = 1_000
"""Places where a trace without steps may be cut (chosen)."""

_SUMS: tuple[BreakdownKey, ...] = ("bound", "op")
"""Groups of the path of the whole trace."""

_MORE = 2
"""Parts that are read before one that lacks launches: three in all. A limit of memory."""

_LEARNED_FROM = 3
"""Device work and API calls from which all parts learn, in parts of text. A limit of memory: half
of most text is of operators, so six parts; of a trace with more, some."""

_TEXTS = ("cause", "bound", "name", "op", "ranges", "frame", "place", "meanwhile", "step")
"""Columns by which attributed time is summed."""

_FACTS = ("sums", "entered", "dur_ns", "damage", "start_ns", "begins", "n_warm_up")
"""What is kept of a part besides its attributed time."""

_FAR = 1 << 62
"""A time before and after all others, as far as windows of files reach."""


_NO_ROOM = (
    "the columns of a trace take up to a tenth of its text: choose a folder with room for them "
    "(cache=, or HTAGRAPH_GRAPH_CACHE; else TMPDIR)."
)

_READ_IN_PARTS = (
    "Read in parts, with an eighth more around each: a wait for something before that is an "
    "unknown wait, and what threads wait for is learned from each part by itself."
)


class _Place(NamedTuple):
    """Where a path passes from one part to the one before: a node, by its event in the file."""

    offset: int
    is_end: bool
    time_ns: int


@dataclass(frozen=True)
class _Part:
    """What is kept of a part."""

    # Its attributed time, summed by `_TEXTS`: ``dur_ns``, ``n``, ``longest_ns``, ``start_ns`` of
    # the longest
    labels: pd.DataFrame
    # Of the path by each of `_SUMS`: time, and number of segments
    sums: Mapping[str, Mapping[str, tuple[int, int]]]
    entered: _Place | None  # Where the part before ends
    dur_ns: int
    damage: tuple[Damage, ...]
    start_ns: int
    begins: bool  # The window begins here: nothing of the parts before is in it
    # Steps that are left out at first, as far as this part shows; -1 if what is judged are no steps
    n_warm_up: int

    @property
    def end_ns(self) -> int:
        """Where its path ends."""
        return self.start_ns + self.dur_ns

    @property
    def before(self) -> _Part:
        """A part before the window."""
        nothing: dict[str, dict[str, tuple[int, int]]] = {str(by): {} for by in _SUMS}
        return replace(self, labels=self.labels[:0], sums=nothing, dur_ns=0, damage=())

    def arrays(self) -> Arrays:
        """What is stored."""
        facts = {name: getattr(self, name) for name in _FACTS}
        facts["texts"] = {name: self.labels[name].cat.categories.tolist() for name in _TEXTS}
        codes = {name: self.labels[name].cat.codes for name in _TEXTS}
        columns = self.labels.assign(**codes)
        arrays = {str(name): column.to_numpy() for name, column in columns.items()}
        return {"facts": _packed(facts), **arrays}

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> _Part:
        """From what `arrays` returned."""
        facts = _unpacked(arrays["facts"])
        columns: dict[str, Any] = {name: arrays[name] for name in arrays if name != "facts"}
        columns |= {name: categorical(columns[name], facts["texts"][name]) for name in _TEXTS}
        facts["entered"] = _Place(*facts["entered"]) if facts["entered"] else None
        facts["damage"] = tuple(Damage(DamageKind(one[0]), *one[1:]) for one in facts["damage"])
        return cls(pd.DataFrame(columns), **{name: facts[name] for name in _FACTS})


def _packed(facts: object) -> U8:
    """Facts, as arrays are stored."""
    return np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)


def _unpacked(stored: npt.NDArray[Any]) -> Any:  # noqa: ANN401  JSON
    """From what `_packed` returned."""
    return json.loads(stored.tobytes())


def _learnt_of(arrays: Arrays) -> Learnt:
    """From what is stored of what all parts learn."""
    calibration, keys = _unpacked(arrays["facts"])
    return Learnt(Calibration(**calibration), frozenset(keys))


_Found = tuple[CriticalPath, _Place | None, bool, int]
"""The path of a part, and of its `_Part`: ``entered``, ``begins``, ``n_warm_up``."""


@dataclass(frozen=True, repr=False)
class Stepwise:
    """The verdict on a trace that was read in parts.

    Parameters
    ----------
    verdict : Verdict
    by_bound, by_op : DataFrame, schema `frames.BREAKDOWN`
        The critical path of the whole trace.
    n_steps, n_parts : int
    """

    verdict: Verdict
    by_bound: pd.DataFrame
    by_op: pd.DataFrame
    n_steps: int
    n_parts: int

    @property
    def paragraphs(self) -> tuple[Paragraph, ...]:
        """The verdict in words, and what reading in parts means for it."""
        said = self.verdict.rests_on
        return (*self.verdict.paragraphs, *([Paragraph("note", said)] if said else []))

    def __repr__(self) -> str:
        """The verdict as the terminal shows it."""
        return "\n".join(lines_of(self.paragraphs))


def stepwise_verdict(
    source: str | Path,
    *,
    stacks: bool = False,
    infer: bool = True,
    cache: str | Path | None = None,
    part_bytes: int | None = None,
    progress: Listener | None = None,
) -> Stepwise:
    """The verdict on a Kineto trace that is larger than memory, read in parts of some steps.

    The critical path is that of the whole trace, where a part shows what a wait depends on. Device
    clock, usual delays and recurring waits are learned from all parts, or as many as fit into
    memory. Predictions are replayed in one part, and scaled.

    Parameters
    ----------
    source : str or Path
        A file on disk.
    stacks : bool, default=False
    infer : bool, default=True
    cache : str or Path, optional
        Folder that keeps the events as columns, and each part that is done: an interrupted call
        continues there. By default a temporary one, of which nothing is kept.
    part_bytes : int, optional
        Text of a part, without what is around it, which takes about three times as much memory. By
        default 256 MiB; half of it, a quarter and so on if less than eight times as much is free.
    progress : callable, optional

    Returns
    -------
    Stepwise

    Raises
    ------
    TraceFormatError
        If the file is no trace.
    OutputError
        If the folder has no room for the columns.

    Examples
    --------
    >>> import htagraph as hg
    >>> found = hg.stepwise_verdict(hg.demo_trace("dataloader"), part_bytes=100_000)
    >>> found.n_parts, found.verdict.findings[0].title
    (2, 'Data loading')
    """
    path = path_of(source)
    with listening(progress), TemporaryDirectory() as none:
        begin_stage(f"Reading {path.name}")
        size, free = PART_BYTES, free_bytes()
        while 8 * size > free and size > 1 << 20:  # halves, so that it is the same next time
            size //= 2
        size = size if part_bytes is None else part_bytes
        folder = Path(none if cache is None else cache).expanduser()
        try:
            chunks = Chunks(path, folder)
        except OutputError as exc:
            exc.hint = _NO_ROOM
            raise
        run = _Run(chunks, folder, LoadOptions((), stacks, infer), size)
        return run.judged()


@dataclass(frozen=True)
class _Run:
    """One trace, read part by part."""

    chunks: Chunks
    folder: Path
    options: LoadOptions
    part_bytes: int

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Steps of the trace."""
        return find_steps(self.chunks.named_ranges().events)

    @cached_property
    def base_ns(self) -> int:
        """Time 0 of the file."""
        return base_time_of(self.chunks.metadata)

    @cached_property
    def starts_ns(self) -> list[int]:
        """Where parts begin, the first at the beginning of time."""
        zones = self.chunks.zones
        starts = self.steps["start_ns"].to_numpy(np.int64) - self.base_ns
        within = zones.first_ns[zones.n_events > 0], zones.last_ns[zones.n_events > 0]
        if len(starts) <= 1 and len(within[0]):
            starts = np.linspace(within[0].min(), within[1].max(), _EVENLY).astype(np.int64)
        text = _text_until(starts, zones) // self.part_bytes
        cuts = starts[1:][np.diff(text) > 0] + self.base_ns
        return [-_FAR, *cuts.tolist()]

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return len(self.starts_ns)

    @cached_property
    def _around_ns(self) -> int:
        """How much before and after a part is read at first."""
        step_ns = int(self.steps["dur_ns"].max()) if len(self.steps) else 0
        if self.n_parts <= 2:
            return step_ns
        usual_ns = int(np.median(np.diff(self.starts_ns[1:])))
        return max(min(step_ns, usual_ns), int(_AROUND * usual_ns))

    def judged(self) -> Stepwise:
        """The parts, from the last to the first, and what they say together.

        What is learned is kept before a part is read: a run that is killed soon gets further.
        """
        parts: list[_Part] = []
        for number in range(self.n_parts - 1, -1, -1):
            if parts and parts[0].begins:
                parts.insert(0, parts[0].before)
                continue
            if (found := self._entry(number).read(_Part.of)) is None:
                _ = self.learnt
                begin_stage(f"Judging part {self.n_parts - number} of {self.n_parts}")
                found = self._found(number, parts)
                self._keep(number, found.arrays())
            parts.insert(0, found)
        begin_stage("Judging all parts")
        return self._together(parts, _merged(parts))

    def _entry(self, number: int | str) -> Entry:
        kind = f"part {number} of {self.part_bytes} bytes {self.options}"
        return entry_of((self.chunks.path,), self.folder, kind)

    def _keep(self, number: int | str, found: Arrays) -> None:
        with suppress(OutputError):  # then the next run judges this part again
            self._entry(number).write(found)

    @property
    def learned_from(self) -> range:
        """The parts from which all learn."""
        every = ceil(self.chunks.device_share * self.n_parts / _LEARNED_FROM)
        return range(every // 2, self.n_parts, every) if every else range(0)

    @cached_property
    def learnt(self) -> Learnt | None:
        """What all parts learn from some; None if there is one, or no device."""
        if self.n_parts == 1 or not self.learned_from:
            return None
        if (kept := self._entry("all").read(_learnt_of)) is not None:
            return kept
        begin_stage("Learning from several parts")
        windows = [(self.starts_ns[some], self._end_ns(some)) for some in self.learned_from]
        found = learnt_from(self.chunks.devices(windows), infer=self.options.infer)
        self._keep("all", {"facts": _packed((asdict(found.calibration), sorted(found.keys)))})
        return found

    def _found(self, number: int, later: Sequence[_Part]) -> _Part:
        """Read and compile a part, and find its path from where the next one is entered."""
        path, entered, begins, n_warm_up = self._path(number, later)
        labels = path.attributed_labels if begins else _attributed(path)
        ends = number == 0, number == self.n_parts - 1
        damage = tuple(one for one in damage_of(path.dag, path.window) if _is_of(one, path, *ends))
        sums = {str(by): _sums(path, by) for by in _SUMS}
        return _Part(
            _summed(labels), sums, entered, path.dur_ns, damage, path.start_ns, begins, n_warm_up
        )

    def _path(self, number: int, later: Sequence[_Part]) -> _Found:
        """The path of a part.

        If launches of what is on the path were not read, two parts before it are read as well.
        """
        place = later[0].entered if later else None
        until_ns = place.time_ns if place else self._end_ns(number)
        since_ns = min(self.starts_ns[number], until_ns) - self._around_ns
        until_ns += self._around_ns
        found = self._path_within(number, later, (since_ns, until_ns))
        if number > 0 and (found[0].bounds == Bound.WORK_FROM_BEFORE_THE_PROFILE).any():
            del found  # its memory is needed
            since_ns = min(since_ns, self.starts_ns[max(number - _MORE, 0)])
            found = self._path_within(number, later, (since_ns, until_ns))
        return found

    def _end_ns(self, number: int) -> int:
        return [*self.starts_ns, _FAR][number + 1]

    def _path_within(self, number: int, later: Sequence[_Part], times: tuple[int, int]) -> _Found:
        """The same, if only a window of the file is read."""
        times = max(times[0], -_FAR), min(times[1], _FAR)
        recording = self.chunks.read(EventFilter(self.options.stacks or False, None, times))
        begin_stage("Compiling the graph")
        dag = compile_events(recording.events, infer=self.options.infer, learnt=self.learnt)
        notes = {**dag.notes, "n_unread_stacks": recording.skipped.get(STACKS, 0)}
        loading = self.options.data_loading
        dag = replace(dag, notes=notes, repairs=recording.repairs, data_loading=loading)
        args = recording.origin.args if recording.origin else None
        assert isinstance(args, ArgsIndex)
        place = later[0].entered if later else None
        node = _node_at(place, args) if place else -1
        # Parts before the first work, and behind the last, are empty.
        start_ns, end_ns = self.starts_ns[number], self._end_ns(number)
        if node >= 0:
            end_ns = int(dag.events.node_ts_ns[node])
        n_warm_up = later[-1].n_warm_up if later else self._n_warm_up(dag)
        if node < 0 and not any(part.dur_ns for part in later):
            end_ns = dag.span.end_ns
            if n_warm_up >= 0:
                steps = done_steps(dag)
                end_ns, node = int(steps.end_ns[-1]), int(steps.anchor[-1])
            end_ns = max(end_ns, start_ns)
        if number == 0 and n_warm_up >= 0:
            last = later[-1] if later else None
            n_warm_up = self._n_shown(dag, n_warm_up, last.end_ns if last else end_ns)
        begin_ns = self._begin_ns(dag, n_warm_up, has_begin=times[0] <= -_FAR)
        begins = number == 0 or begin_ns > start_ns
        if begins:
            start_ns = begin_ns if dag.is_work.any() else end_ns
        window = Window(min(start_ns, end_ns), end_ns, WHOLE, node)
        first = -1 if begins else _entering(dag, window, start_ns - times[0])
        entered = None
        if first >= 0:
            time_ns = int(dag.events.node_ts_ns[first])
            window = replace(window, start_ns=time_ns)
            entered = _Place(int(args.offset[first >> 1]), bool(first & 1), time_ns)
        if self.n_parts == 1:
            window, _ = default_window(dag)
        path = CriticalPath(dag, window, recording.rank, recording.origin)
        return path, entered, begins, n_warm_up

    @property
    def _first_ns(self) -> int:
        """Start of the trace."""
        return int(self.chunks.zones.first_ns.min()) + self.base_ns

    def _n_warm_up(self, last: Dag) -> int:
        """How many steps are left out at first, by their number; -1 if what is judged are no steps.

        Only the first part shows what they do: see `_n_shown`.
        """
        steps, n = self.steps["start_ns"].to_numpy(np.int64), len(self.steps)
        first = int(n > FEWEST_ALIKE)
        if n < first + 2:
            return -1
        steps_ns = int(done_steps(last).end_ns[-1] - steps[first])
        return first if 2 * steps_ns >= last.span.end_ns - self._first_ns else -1

    def _n_shown(self, first: Dag, n_warm_up: int, end_ns: int) -> int:
        """The same, with further steps that the first part shows to warm up, as `default_window`.

        Not if what is left is less than half, nor beyond that part: what follows is judged by then.
        """
        steps = done_steps(first)
        n_shown = steps.n_warming_up(steps.inside(first.span.start_ns, self._end_ns(0)))
        left_ns = end_ns - int(self.steps["start_ns"].iloc[n_shown])
        is_half = 2 * left_ns >= end_ns - self._first_ns
        return max(n_shown, n_warm_up) if is_half else n_warm_up

    def _begin_ns(self, dag: Dag, n_warm_up: int, *, has_begin: bool) -> int:
        """When the window begins, as far as a part shows: when the step before is done."""
        if n_warm_up < 0:
            return dag.span.start_ns if has_begin else -_FAR
        start_ns = self.steps["start_ns"].to_numpy(np.int64)
        begun_ns = int(start_ns[n_warm_up])
        if n_warm_up:
            ends_ns = start_ns + self.steps["dur_ns"].to_numpy(np.int64)
            begun_ns = min(int(ends_ns[:n_warm_up].max()), begun_ns)
        work, began_ns = device_work_began(dag)
        earlier = began_ns < start_ns[n_warm_up]
        if not has_begin:  # what has no launch may have one that was not read
            earlier &= dag.launch[work] >= 0
        return int(dag.events.end_ns[work[earlier]].max(initial=begun_ns))

    def _together(self, parts: Sequence[_Part], labels: pd.DataFrame) -> Stepwise:
        """The verdict on all parts."""
        total_ns, name = sum(part.dur_ns for part in parts), self._name(parts[0].n_warm_up)
        last = parts[-1]
        begin_ns = min(part.start_ns for part in parts if part.dur_ns or part is last)
        span = Window(begin_ns, last.end_ns, WHOLE)
        damage = _damage_of_all(parts, replace(span, start_ns=self._first_ns))
        lost = lost_share(damage, span)
        if lost > LOST_LIMIT:
            verdict = Verdict((), lost_in_words(lost), window=name, dur_ns=total_ns)
        else:
            verdict = self._charged(parts, labels, total_ns, name)
        verdict = replace(verdict, damage=damage_in_words(damage))
        by_bound, by_op = (_breakdown(parts, by, total_ns) for by in _SUMS)
        return Stepwise(verdict, by_bound, by_op, len(self.steps), self.n_parts)

    def _name(self, n_warm_up: int) -> str:
        """The window, as a title has it."""
        n = len(self.steps) - max(n_warm_up, 0)
        steps = human_count(n, "step") if n else "the whole trace"
        return f"{steps}, read in {human_count(self.n_parts, 'part')}"

    def _charged(
        self, parts: Sequence[_Part], labels: pd.DataFrame, total_ns: int, called: str
    ) -> Verdict:
        """The findings, with predictions from the part that is most like all."""
        number = _usual(labels, self.n_parts)
        path, *_ = self._path(number, parts[number + 1 :])
        if self.n_parts == 1:
            return find_bounds(path)
        context = find_context(path.dag, path.window)
        path = _sample(path)
        opportunities = path.excerpt.scaled(path.trials.causes)
        if len(opportunities):
            context = replace(context, compute=light_on(path))
        by_cause = labels.groupby("cause", observed=True)["dur_ns"].sum()
        there = _attributed(path).groupby("cause", observed=True)["dur_ns"].sum()
        factors = {str(cause): float(by) for cause, by in (by_cause / there).dropna().items()}
        costs = _scaled(opportunities, factors, total_ns / max(path.dur_ns, 1))
        verdict = charged(labels, called, total_ns, told_of(path, context, costs))
        n_warm_up = parts[0].n_warm_up
        verdict = replace(verdict, n_steps=len(self.steps) - n_warm_up if n_warm_up >= 0 else 0)
        name = path.window.name
        where = ("" if name == WHOLE else f"{name} of ") + f"part {number + 1}"
        said = [self._left_out(n_warm_up, parts[0]), _READ_IN_PARTS, self._learned_in_words]
        said.append(_joined_in_words(parts))
        said += [f"Predicted from {where}, in proportion."] if len(opportunities) else []
        return replace(verdict, rests_on=" ".join(filter(None, said)))

    def _left_out(self, n_warm_up: int, first: _Part) -> str:
        """What the window leaves out before it, as far as parts show; empty for nothing."""
        if n_warm_up < 0:
            return ""
        starts_ns = self.steps["start_ns"].to_numpy(np.int64)
        ends_ns = np.append(starts_ns[1:], max(first.end_ns, starts_ns[-1] + 1))
        kind = np.zeros(len(starts_ns), dtype=np.int64)
        names = self.steps["name"].to_numpy(object)
        steps = DoneSteps(names, starts_ns, ends_ns, kind, kind - 1)
        rest = self._first_ns, int(ends_ns[-1])
        said = ends_in_words(steps, slice(n_warm_up, len(starts_ns)), rest)
        return f"Left out: {' and '.join(said)}." if said else ""

    @property
    def _learned_in_words(self) -> str:
        """From what all parts learn; empty if from all."""
        n = len(self.learned_from)
        if n in {0, self.n_parts}:
            return ""
        some = f"{n} of {self.n_parts} parts"
        return f"Device clock, usual delays and recurring waits are learned from {some}."


def _joined_in_words(parts: Sequence[_Part]) -> str:
    """Where the paths of parts do not join; empty if all do."""
    within = [part for part in parts if part.dur_ns]
    apart = sum(part.entered is None for part in within[1:])
    if not apart:
        return ""
    return (
        f"At {apart} of {human_count(len(parts) - 1, 'cut')} the path has no event: there, the "
        "part before is judged up to the start of the next."
    )


def _text_until(times: I64, zones: Zones) -> I64:
    """Bytes of events up to some times, as if each piece had the same everywhere."""
    first, last = zones.first_ns.astype(np.float64), zones.last_ns.astype(np.float64)
    rate = (zones.stop - zones.start) * (zones.n_events > 0) / np.maximum(last - first, 1.0)
    at, change = np.concatenate([first, last]), np.concatenate([rate, -rate])
    order = np.argsort(at, kind="stable")
    grown = np.cumsum(np.diff(at[order]) * np.cumsum(change[order])[:-1])
    found: I64 = np.interp(times, at[order], np.append(0, grown)).astype(np.int64)
    return found


def _node_at(place: _Place, args: ArgsIndex) -> int:
    """Node of an event of the file, -1 if it was not read."""
    row = int(np.searchsorted(args.offset, place.offset))
    is_there = row < len(args.offset) and args.offset[row] == place.offset
    return 2 * row + place.is_end if is_there else -1


def _entering(dag: Dag, window: Window, around_ns: int) -> int:
    """Node at which the path enters a window: its first there, or its last before, -1 for neither.

    Where the walk ends early, what is before may know why: so it continues there, unless all that
    would have to be read again.
    """
    if window.anchor >= 0 and not window.dur_ns:
        return window.anchor
    rows = path_edges(dag, window)
    if not len(rows):
        return -1
    nodes = np.append(dag.edges.tail[rows[:1]], dag.edges.head[rows])
    times = dag.events.node_ts_ns[nodes]
    until_ns = min(window.start_ns + max(around_ns, 1), window.end_ns)
    near = np.flatnonzero((times >= window.start_ns) & (times <= until_ns))
    if len(near):
        return int(nodes[near[0]])
    return int(nodes[0]) if times[0] < window.start_ns else -1


def _attributed(path: CriticalPath) -> pd.DataFrame:
    """The attributed time of a part; a wait before it may be the cause of what follows."""
    window = replace(path.window, start_ns=min(path.window.start_ns, path.dag.span.start_ns))
    labels = CriticalPath(path.dag, window, path.rank, path.origin).attributed_labels
    ends_ns = labels["start_ns"] + labels["dur_ns"]
    labels = labels[ends_ns > path.start_ns].reset_index(drop=True)
    labels["dur_ns"] -= (path.start_ns - labels["start_ns"]).clip(lower=0)
    labels["start_ns"] = labels["start_ns"].clip(lower=path.start_ns)
    return labels


def _damage_of_all(parts: Sequence[_Part], span: Window) -> list[Damage]:
    """What of the trace is damaged: all holes, and the largest of each other kind.

    What two parts tell of the same place, or of the whole trace, counts once.
    """
    found: list[Damage] = []
    for one in sorted((one for part in parts for one in part.damage), key=lambda one: -one.n):
        alike = (other for other in found if other.kind == one.kind)
        if one.kind in HOLES:
            alike = (other for other in alike if one.overlaps(other.start_ns, other.end_ns))
        if next(alike, None) is None:
            found.append(one)
    holes = {kind: [one for one in found if one.kind is kind] for kind in HOLES}
    said = {kind: holes_in_words(kind, some, span) for kind, some in holes.items() if some}
    return [one._replace(said=said.get(one.kind, one.said)) for one in found]


def _is_of(one: Damage, path: CriticalPath, is_first: bool, is_last: bool) -> bool:
    """Whether something is damaged, and not only beyond what was read.

    A hole is, if work was launched after it, and other work ran before it.
    """
    dag = path.dag
    work = np.flatnonzero(dag.launch >= 0)
    ran_ns, launched_ns = dag.events.ts_ns[work], dag.events.ts_ns[dag.launch[work]]
    begins = is_first or bool((ran_ns < one.start_ns).any())
    return one.kind not in HOLES or (begins and (is_last or bool((launched_ns > one.end_ns).any())))


def _sample(path: CriticalPath) -> CriticalPath:
    """The path of some steps in the middle of a part, few enough to be replayed many times."""
    dag, window = path.dag, path.window
    steps = find_steps(dag.events)
    starts = steps["start_ns"].to_numpy(np.int64)
    inside = np.flatnonzero((starts >= window.start_ns) & (starts <= window.end_ns))
    n_wanted = max(len(inside) * _N_REPLAYED // max(len(dag.events), 1), 2)
    if n_wanted + 2 >= len(inside):
        return path
    first = int(inside[(len(inside) - n_wanted) // 2])
    last = first + n_wanted
    names = dict.fromkeys(steps["name"].iloc[[first, last - 1]])
    cut = cut_out(dag, int(starts[first - 1]), int(starts[last]))
    there = Window(int(starts[first]), int(starts[last]), " to ".join(names))
    return CriticalPath(cut, there, path.rank, path.origin)


def _summed(labels: pd.DataFrame) -> pd.DataFrame:
    """Attributed time summed by all its texts."""
    texts = {
        name: labels[name].astype("category").cat.remove_unused_categories() for name in _TEXTS
    }
    number = np.zeros(len(labels), dtype=np.int64)
    for column in texts.values():
        number = pd.factorize(number * (len(column.cat.categories) + 1) + column.cat.codes)[0]
    dur_ns = labels["dur_ns"].to_numpy(np.int64)
    total_ns, longest_ns, row = np.zeros((3, int(number.max(initial=-1)) + 1), dtype=np.int64)
    np.add.at(total_ns, number, dur_ns)
    np.maximum.at(longest_ns, number, dur_ns)
    longest = np.flatnonzero(dur_ns == longest_ns[number])[::-1]
    row[number[longest]] = longest
    # Pieces of one segment with one cause count once.
    is_first = ~labels[["segment", "cause"]].duplicated().to_numpy()
    columns = {
        **{name: column.array[row] for name, column in texts.items()},
        "dur_ns": total_ns,
        "n": np.bincount(number[is_first], minlength=len(row)),
        "longest_ns": longest_ns,
        "start_ns": labels["start_ns"].to_numpy(np.int64)[row],
    }
    return pd.DataFrame(columns)


def _merged(parts: Sequence[_Part]) -> pd.DataFrame:
    """The attributed time of all parts, with the number of the part."""
    frames = [part.labels.assign(part=number) for number, part in enumerate(parts)]
    labels = pd.concat(frames, ignore_index=True).astype(dict.fromkeys(_TEXTS, "category"))
    return labels.assign(segment=labels.index, event=-1)


def _sums(path: CriticalPath, by: BreakdownKey) -> dict[str, tuple[int, int]]:
    """Time and number of segments of a path by group."""
    found = path.sums(by=by)
    labels, dur_ns, n = (found[name].tolist() for name in (by, "dur_ns", "n_segments"))
    return dict(zip(labels, zip(dur_ns, n, strict=True), strict=True))


def _breakdown(parts: Sequence[_Part], by: str, total_ns: int) -> pd.DataFrame:
    """Time of all paths by group, schema `frames.BREAKDOWN`."""
    rows = [(label, *sums) for part in parts for label, sums in part.sums[by].items()]
    sums = pd.DataFrame(rows, columns=[by, "dur_ns", "n_segments"]).groupby(by, sort=False).sum()
    sums = sums.sort_values("dur_ns", ascending=False, kind="stable")
    return sums.assign(share=sums["dur_ns"] / max(total_ns, 1))[list(BREAKDOWN.columns)]


def _usual(labels: pd.DataFrame, n_parts: int) -> int:
    """The part whose causes have most nearly the shares of all; labels are those of `_merged`."""
    sums = labels.pivot_table("dur_ns", "part", "cause", "sum", fill_value=0, observed=True)
    shares = sums.div(sums.sum(axis=1).clip(lower=1), axis=0)
    away = (shares - sums.sum() / max(sums.to_numpy().sum(), 1)).abs().sum(axis=1)
    if n_parts > 2:
        away = away.drop([0, n_parts - 1], errors="ignore")  # they begin and end like no other
    return int(away.idxmin()) if len(away) else 0


def _scaled(found: pd.DataFrame, factors: Mapping[str, float], other: float) -> pd.DataFrame:
    """Savings of a part, scaled to all parts: of a cause as its time is, of others as all time."""
    factor = found["cause"].map(lambda cause: factors.get(cause, other)).to_numpy(np.float64)
    names = [name for name in found.columns if name.endswith("_ns")]
    return found.assign(**{name: np.rint(found[name] * factor).astype(np.int64) for name in names})
