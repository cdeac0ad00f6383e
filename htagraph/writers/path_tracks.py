"""What limits a run, on top of its trace: its findings over time, its critical path, its waits.

A finding has the stretches in which it is the main cause, titled like its card, with cost, fix and
evidence as arguments. Below, the path has a slice per segment, with its bound and event; that of a
job has a row above, with its ranks. Both have the colors of the report. Rows of an answer, if they
have a time and a name, are slices of a track of their own::

    Findings            [Data loading, costs 71%                     ][GPU compute, costs 6%]
      Critical path     [CPU operators · aten::mm][data loading · next][GPU compute · gemm]
    Findings: patterns   [copy, gemm][relu]   [copy, gemm][relu]

Each rank of a job has a track with its collectives. A rank that arrives before the others waits;
the last one was late meanwhile. Arrows lead from its arrival to the others, who can now continue::

    Findings: who waits for whom
      rank 2               [late, 2 ranks wait][all_reduce]
      rank 0       [waits for rank 2          ][all_reduce]
      rank 1         [waits for rank 2        ][all_reduce]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.intervals import rows
from htagraph.errors import QueryError
from htagraph.model.arrays import I64, Bools
from htagraph.model.colors import COLORS, LATE
from htagraph.model.colors import WAITS as WAITING
from htagraph.model.kinds import Bound, Cause, bound_in_words
from htagraph.model.labels import name_label
from htagraph.model.names import CRITICAL_PATH
from htagraph.model.rules import Rule
from htagraph.model.units import human_count
from htagraph.writers.slice_packets import Arg, Flows, Slices, Strings, Tracks

_EVIDENCE = {rule.label: str(rule.evidence) for rule in Rule}
_COLORS = {bound.label: color.perfetto for bound, color in COLORS.items()}
_LATE_RANK = re.compile(rf"{Cause.LATE_RANK} (\d+)")
_FINDINGS = (
    "The main cause of each part of the run, neighbors merged. Select a slice for what it costs, "
    "and what to do."
)


class Card(NamedTuple):
    """Title of a finding, and what else is said of it."""

    title: str
    said: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> Card:
        r"""A card from its lines: the title, then ``name: text`` each."""
        title, *lines = text.split("\n")
        return cls(
            title, {name: said for name, _, said in (line.partition(": ") for line in lines)}
        )


@dataclass(frozen=True)
class DrawnPath:
    """A critical path to be drawn, with what it is charged to."""

    # Schema `frames.SEGMENTS` or `frames.JOB_SEGMENTS`; if known, with causes in ``cause``, and
    # what ran between operators in ``code``
    segments: pd.DataFrame
    # As of `segment_causes.main_causes`: ``start_ns``, ``dur_ns``, ``cause``, ``bound``
    causes: pd.DataFrame
    # The card of each cause, as `Card.of` reads it; the first finding first
    findings: Mapping[str, str]
    description: str = ""  # Help text of the path's track
    waits: pd.DataFrame | None = None  # Of a job: who waits for whom, as `WAITS`
    # More to draw, by the name of its track, see `answer_slices`
    answers: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def opening(self, zero_ns: int) -> dict[str, int]:
        """Where ``htagraph view`` opens the file: at the first finding, longest stretch.

        Of a late rank, at its longest late arrival. Times are those of the file, in which `zero_ns`
        is 0: ``last_ns``, the end of the path; ``start_ns`` and ``end_ns`` of the slice to select;
        of a job, ``rank``.
        """
        if self.segments.empty:
            return {}
        start_ns = self.segments["start_ns"].to_numpy(np.int64)
        found = {"last_ns": start_ns[-1] + self.segments["dur_ns"].iloc[-1] - zero_ns}
        stretches = (self._stretches(label) for label in self.findings)
        shown = next((one for one in stretches if len(one)), None)
        if shown is not None:
            first: dict[Any, Any] = shown.iloc[int(shown["dur_ns"].to_numpy().argmax())].to_dict()
            begin_ns = first["start_ns"] - zero_ns
            found |= {"start_ns": begin_ns, "end_ns": begin_ns + first["dur_ns"]}
            if "rank" in self.segments:
                there = np.searchsorted(start_ns, first["start_ns"], side="right") - 1
                found["rank"] = first.get("rank", self.segments["rank"].to_numpy()[there])
        return {name: int(value) for name, value in found.items()}

    def _stretches(self, label: str) -> pd.DataFrame:
        """Slices of a finding: arrivals of a late rank, or where a cause is the main one."""
        if self.waits is not None:
            is_late = (self.waits["n_waiting"] >= 0) & (self.waits["rank"] == late_rank(label))
            if is_late.any():
                return self.waits[is_late]
        return self.causes[self.causes["cause"] == label]


def late_rank(label: str) -> int:
    """The rank in the label of a cause, -1 for none."""
    found = _LATE_RANK.fullmatch(label)
    return int(found[1]) if found else -1


class _Texts(NamedTuple):
    """A text for each segment: a row of `texts`, -1 for none."""

    code: I64
    texts: Sequence[str]

    @classmethod
    def of(cls, values: pd.Series[Any]) -> _Texts:
        """Texts of a column."""
        if isinstance(values.dtype, pd.CategoricalDtype):
            return cls(values.cat.codes.to_numpy().astype(np.int64), values.cat.categories.tolist())
        code, texts = pd.factorize(values)
        return cls(code.astype(np.int64), texts.tolist())

    def mapped(self, texts: Mapping[str, str]) -> _Texts:
        """Texts replaced by a mapping, none where it has no entry."""
        return _Texts(self.code, [texts.get(text, "") for text in self.texts])

    def where(self, keeps: Bools) -> _Texts:
        """Texts where a condition holds, none elsewhere."""
        return _Texts(np.where(keeps, self.code, -1), self.texts)

    def numbers(self, strings: Strings) -> I64:
        """Number of each text, 0 for none."""
        known = np.array([bool(text) for text in self.texts], dtype=bool)
        numbers = np.where(known, strings.add(np.array(self.texts, dtype=object)), 0)
        return np.append(numbers, 0)[self.code].astype(np.int64)


def _about(segments: pd.DataFrame, what: _Texts) -> _Texts:
    """What each segment is called after: its event, or the untraced code between events."""
    if "code" not in segments:
        return what
    code = _Texts.of(segments["code"])
    later = len(what.texts) + code.code
    return _Texts(np.where(code.code < 0, what.code, later), [*what.texts, *code.texts])


def _named(bound: _Texts, what: _Texts, strings: Strings) -> I64:
    """Number of ``bound · event`` for each segment; of the bound alone if nothing is known."""
    n = len(what.texts) + 1
    both = (bound.code * n + what.code + 1).astype(np.int64)
    is_used = np.zeros(n * len(bound.texts), dtype=bool)
    is_used[both] = True
    used = np.flatnonzero(is_used)
    short = ["", *(name_label(text) if text[:1] != "(" else "" for text in what.texts)]
    pairs = ((bound.texts[one // n], short[one % n]) for one in used.tolist())
    texts = [" · ".join(filter(None, pair)) for pair in pairs]
    numbers = np.zeros(len(is_used), dtype=np.int64)
    numbers[used] = strings.add(np.array(texts, dtype=object))
    return numbers[both]


def _arguments(segments: pd.DataFrame, what: _Texts) -> dict[str, _Texts]:
    operator = _Texts.of(segments["op"])
    code_of = {text: code for code, text in enumerate(what.texts)}
    same = np.array([code_of.get(text, -1) for text in operator.texts], dtype=np.int64)
    # The slice of a wait for free SMs is about the kernel that fills it; what waits comes next.
    waits, full = _Texts(np.append(what.code[1:], -1), what.texts), Bound.WAITING_FOR_SMS.label
    rule = _Texts.of(segments["rule"])
    # What is recorded of an unknown wait is its edge, not what the time was spent on.
    is_explained = (segments["bound"] != Bound.UNKNOWN_WAITS.label).to_numpy()
    found = {
        "what": what,
        "operator": operator.where(same[operator.code] != what.code),
        "waiting": waits.where((segments["bound"] == full).to_numpy()),
        "track": _Texts.of(segments["track"]),
        "rule": rule,
        "evidence": rule.mapped(_EVIDENCE).where(is_explained),
    }
    if "cause" in segments:
        found["cause"] = _Texts.of(segments["cause"])
    return found


def _args(segments: pd.DataFrame, what: _Texts, strings: Strings, first: int) -> list[Arg]:
    """Annotations of segments, the first of which is slice `first`."""
    out = []
    for name, texts in _arguments(segments, what).items():
        numbers = texts.numbers(strings)
        at = np.flatnonzero(numbers)
        out.append(Arg(name, first + at, numbers[at], "text"))
    residual_ns = segments["residual_ns"].to_numpy(np.int64)
    at = np.flatnonzero(residual_ns)
    out.append(Arg("residual_ns", first + at, residual_ns[at], "int"))
    return [arg for arg in out if len(arg.row)]


def _stays(segments: pd.DataFrame) -> tuple[npt.NDArray[np.intp], I64, list[int]]:
    """Where the path of a job changes rank, how long it stays, and on which rank."""
    if "rank" not in segments:
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64), []
    rank = segments["rank"].to_numpy(np.int64)
    first = np.flatnonzero(np.diff(rank, prepend=rank[0] - 1))
    dur_ns = np.add.reduceat(segments["dur_ns"].to_numpy(np.int64), first)
    return first, dur_ns, rank[first].tolist()


def _finding_slices(drawn: DrawnPath, zero_ns: int, root: int, strings: Strings) -> Slices:
    """The main cause of each part of the run, with the title and the arguments of its card."""
    causes, n = drawn.causes, len(drawn.causes)
    cause, bound = _Texts.of(causes["cause"]), _Texts.of(causes["bound"])
    cards = {label: Card.of(text) for label, text in drawn.findings.items()}
    titles = {label: cards[label].title if label in cards else label for label in cause.texts}
    is_late = np.array([late_rank(label) >= 0 for label in cause.texts], dtype=bool)[cause.code]
    late, color = strings.add([LATE.perfetto]), bound.mapped(_COLORS).numbers(strings)
    args = []
    for name in dict.fromkeys(name for card in cards.values() for name in card.said):
        texts = {label: card.said.get(name, "") for label, card in cards.items()}
        numbers = cause.mapped(texts).numbers(strings)
        if len(at := np.flatnonzero(numbers)):
            args.append(Arg(name, at, numbers[at], "text"))
    return Slices(
        ts_ns=causes["start_ns"].to_numpy(np.int64) - zero_ns,
        dur_ns=causes["dur_ns"].to_numpy(np.int64),
        track=np.broadcast_to(root, n),
        name=cause.mapped(titles).numbers(strings),
        category=np.broadcast_to(strings.add([CRITICAL_PATH]), n),
        color=np.where(is_late, late, color),
        is_instant=np.zeros(n, dtype=bool),
        boundary=np.arange(2 * n),
        args=args,
    )


def path_slices(
    drawn: DrawnPath, zero_ns: int, tracks: Tracks, strings: Strings, flows: Flows
) -> list[Slices]:
    """Findings and path as slices of two tracks; `flows` are ends of arrows at segments."""
    segments = drawn.segments
    if segments.empty:
        return []
    root = tracks.root("Findings", _FINDINGS)
    # The UI hides roots without children in a folded group.
    track = tracks.child(tracks.called("Critical path"), root, description=drawn.description)
    first, stays_ns, ranks = _stays(segments)
    n_stays, n = len(first), len(first) + len(segments)
    ts_ns = segments["start_ns"].to_numpy(np.int64) - zero_ns
    start = np.concatenate([ts_ns[first], ts_ns])
    dur_ns = np.concatenate([stays_ns, segments["dur_ns"].to_numpy(np.int64)])
    words = {label: bound_in_words(label) for label in Bound.labels()}
    what, bound = _Texts.of(segments["name"]), _Texts.of(segments["bound"])
    stays = strings.add(np.array([f"rank {rank}" for rank in ranks], dtype=object))
    # Viewers hash a text to a hue; texts that differ only at their end get hues side by side.
    hues = strings.add(np.array([f"{rank} on path" for rank in ranks], dtype=object))
    path = Slices(
        ts_ns=start,
        dur_ns=dur_ns,
        track=np.broadcast_to(track, n),
        name=np.concatenate([stays, _named(bound.mapped(words), _about(segments, what), strings)]),
        category=np.broadcast_to(strings.add([CRITICAL_PATH]), n),
        color=np.concatenate([hues, bound.mapped(_COLORS).numbers(strings)]),
        is_instant=np.zeros(n, dtype=bool),
        boundary=rows(np.zeros(n, dtype=np.int32), start, start + dur_ns)[1],
        args=_args(segments, what, strings, n_stays),
        flows=Flows(flows.row + n_stays, flows.id),
    )
    return [_finding_slices(drawn, zero_ns, root, strings), path]


_FORMS = {"i": "int", "u": "int", "f": "float", "b": "flag"}
"""Form of an argument by the kind of its dtype; others are texts."""


def times_of(frame: pd.DataFrame) -> tuple[str, str]:
    """The columns with the start and with the name of each row."""
    start = next((name for name in ("start_ns", "ts_ns") if name in frame), "")
    named = next((str(name) for name in frame if frame[name].dtype.kind == "O"), "")
    if not start or not named or "dur_ns" not in frame:
        hint = "give an answer with start_ns or ts_ns, dur_ns and a name, such as idle_intervals()."
        raise QueryError("these rows cannot be drawn over time.", hint=hint)
    return start, named


def answer_slices(
    title: str, frame: pd.DataFrame, zero_ns: int, tracks: Tracks, strings: Strings
) -> Slices:
    """Rows of an answer as slices of a track with its title; other columns are arguments."""
    start, named = times_of(frame)
    ts_ns, dur_ns = frame[start].to_numpy(np.int64) - zero_ns, frame["dur_ns"].to_numpy(np.int64)
    if ts_ns.min(initial=0) < 0:
        raise QueryError(
            f"{title}: rows begin before the trace.", hint="give answers about this trace."
        )
    row, boundary = rows(np.zeros(len(frame), dtype=np.int32), ts_ns, ts_ns + dur_ns)
    # Viewers order roots by name: this one comes after the findings, before the devices.
    root = tracks.root(f"Findings: {title}")
    n_rows = int(row.max(initial=0)) + 1
    uuids = np.array([tracks.child(title, root, order) for order in range(n_rows)])
    others = [str(name) for name in frame if name not in (start, named, "dur_ns")]
    return Slices(
        ts_ns=ts_ns,
        dur_ns=dur_ns,
        track=uuids[row],
        name=strings.add(frame[named].map(_text)),
        category=np.broadcast_to(strings.add([CRITICAL_PATH]), len(frame)),
        color=np.zeros(len(frame), dtype=np.int64),
        is_instant=np.zeros(len(frame), dtype=bool),
        boundary=boundary,
        args=[_argument(name, frame[name].to_numpy(), strings) for name in others if len(frame)],
    )


def _text(value: object) -> str:
    """A name as a slice shows it; a pattern by its names."""
    parts = value if isinstance(value, tuple) else (value,)
    return ", ".join(name_label(str(part)) for part in parts)


def _argument(name: str, values: npt.NDArray[np.generic], strings: Strings) -> Arg:
    """A column as an argument of all slices."""
    every = np.arange(len(values))
    match _FORMS.get(values.dtype.kind):
        case "int":
            return Arg(name, every, values.astype(np.int64), "int")
        case "float":
            return Arg(name, every, values.astype(np.float64), "float")
        case "flag":
            return Arg(name, every, values.astype(np.int64), "flag")
    return Arg(name, every, strings.add([str(value) for value in values.tolist()]), "text")


WAITS = ("rank", "start_ns", "dur_ns", "match", "operation", "last_rank", "n_waiting")
"""Columns of waits. A row is a collective of a rank, its wait before it (with `last_rank`, -1 if
unknown), or the time for which `n_waiting` ranks wait for it. What is not the case is -1, and
`operation` is empty.
"""

_ABOUT = (
    "Collectives of the ranks in common time. The last rank to arrive is late for as long as the "
    "one before it waits. Where nothing is drawn, a rank is at work."
)


def wait_slices(
    waits: pd.DataFrame, zero_ns: int, tracks: Tracks, strings: Strings, first_id: int
) -> Slices:
    """Waits as slices of a track for each rank, in the order in which ranks first appear."""
    lane, ranks = pd.factorize(waits["rank"])
    ts_ns = waits["start_ns"].to_numpy(np.int64) - zero_ns
    dur_ns = waits["dur_ns"].to_numpy(np.int64)
    row, boundary = rows(lane.astype(np.int32), ts_ns, ts_ns + dur_ns)
    # Viewers order roots by name: this one comes after the findings, before the devices.
    root = tracks.root("Findings: who waits for whom", _ABOUT)
    uuids = np.array(
        [
            [tracks.child(f"rank {rank}", root, order) for _ in range(row.max() + 1)]
            for order, rank in enumerate(ranks.tolist())
        ]
    )
    names, colors = _texts(waits)
    n = len(waits)
    return Slices(
        ts_ns=ts_ns,
        dur_ns=dur_ns,
        track=uuids[lane, row],
        name=strings.add(names),
        category=np.broadcast_to(strings.add([CRITICAL_PATH]), n),
        color=strings.add(colors),
        is_instant=np.zeros(n, dtype=bool),
        boundary=boundary,
        flows=_arrows(waits, first_id),
    )


def _texts(waits: pd.DataFrame) -> tuple[pd.Series[str], pd.Series[str]]:
    """Names of slices, and the texts that give them a color."""
    last, n_waiting = waits["last_rank"], waits["n_waiting"]
    late = {n: f"late, {human_count(n, 'rank')} wait{'' if n > 1 else 's'}" for n in set(n_waiting)}
    wait = {rank: f"waits for rank {rank}" if rank >= 0 else "waits" for rank in set(last)}
    names = n_waiting.map(late).where(n_waiting >= 0, last.map(wait))
    colors = pd.Series(LATE.perfetto, waits.index).where(n_waiting >= 0, WAITING.perfetto)
    is_idle = waits["operation"] == ""
    work = COLORS[Bound.COMMUNICATION].perfetto
    return names.where(is_idle, waits["operation"]), colors.where(is_idle, work)


def _arrows(waits: pd.DataFrame, first_id: int) -> Flows:
    """From each late arrival to the collectives of the ranks that waited for it."""
    numbered = waits[["rank", "match"]].assign(row=np.arange(len(waits)))
    ends = numbered[waits["n_waiting"] >= 0].merge(numbered[waits["operation"] != ""], on="match")
    ends = ends[ends["rank_x"] != ends["rank_y"]]
    ids = first_id + np.arange(len(ends))
    return Flows.of(np.concatenate([ends["row_x"], ends["row_y"]]), np.tile(ids, 2))
