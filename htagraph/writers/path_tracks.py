"""The critical path as one track: a slice per segment, with its bound and event, colored by bound.

The path of a job has a second row: above the segments, their ranks. Below the path, one slice is
the whole window, with what limits it and its findings as arguments::

    Critical path   [rank 0                            ][rank 2                      ]
                    [host · aten::mm ][compute · gemm  ][communication · AllReduce   ]
      window        [ProfilerStep#5                         ]

(The UI hides roots without children in a folded group.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.rows import rows
from htagraph.model.arrays import I64, Bools
from htagraph.model.categories import CRITICAL_PATH
from htagraph.model.colors import COLORS
from htagraph.model.kinds import Bound, in_words
from htagraph.model.labels import name_label
from htagraph.model.rules import Rule
from htagraph.model.units import human_duration
from htagraph.writers.slice_packets import Arg, Flows, Slices, Strings
from htagraph.writers.tracks import Tracks

__all__ = ["opening", "path_slices"]

_N_FINDINGS = 3
"""Findings in the arguments of the window (chosen)."""

_EVIDENCE = {rule.label: str(rule.evidence) for rule in Rule}
_COLORS = {bound.label: color.perfetto for bound, color in COLORS.items()}


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


def _arguments(
    segments: pd.DataFrame, what: _Texts, findings: Mapping[str, str]
) -> dict[str, _Texts]:
    """Arguments of each segment."""
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
        found["finding"] = found["cause"].mapped(findings)
    return found


def _args(
    segments: pd.DataFrame,
    what: _Texts,
    findings: Mapping[str, str],
    strings: Strings,
    first: int,
) -> list[Arg]:
    """Annotations of segments, the first of which is slice `first`."""
    out = []
    for name, texts in _arguments(segments, what, findings).items():
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


def _total_args(segments: pd.DataFrame, findings: Sequence[str], strings: Strings) -> list[Arg]:
    """Annotations of the window: time by bound and by rank; the first findings."""
    dur_ns = int(segments["dur_ns"].sum())
    texts = []
    for by in ("bound", "rank"):
        if by in segments:
            totals = segments.groupby(by, observed=True)["dur_ns"].sum()
            for group, total in totals.sort_values(ascending=False, kind="stable").items():
                text = f"{human_duration(int(total))} ({total / dur_ns:.1%})"
                texts.append((f"rank {group}" if by == "rank" else in_words(group), text))
    texts += [(f"finding {number}", text) for number, text in enumerate(findings, start=1)]
    row = np.zeros(1, dtype=np.int64)
    return [Arg(name, row, strings.add([text]), "text") for name, text in texts]


def opening(segments: pd.DataFrame, zero_ns: int, at_ns: int | None) -> dict[str, int]:
    """Where ``htagraph view`` opens a file: the path's end, a segment, and in a job its rank.

    Parameters
    ----------
    zero_ns : int, unit=ns
        Time that is 0 in the file.
    at_ns : int, unit=ns, optional
        A time within the segment.
    """
    if segments.empty:
        return {}
    start_ns = segments["start_ns"].to_numpy(np.int64) - zero_ns
    end_ns = start_ns + segments["dur_ns"].to_numpy(np.int64)
    found = {"last_ns": end_ns[-1]}
    if at_ns is not None and start_ns[0] <= at_ns - zero_ns < end_ns[-1]:
        row = np.searchsorted(start_ns, at_ns - zero_ns, side="right") - 1
        found |= {"start_ns": start_ns[row], "end_ns": end_ns[row]}
        found |= {"rank": segments["rank"].to_numpy()[row]} if "rank" in segments else {}
    return {name: int(value) for name, value in found.items()}


def path_slices(
    segments: pd.DataFrame,
    ts_ns: I64,
    tracks: Tracks,
    strings: Strings,
    *,
    flows: Flows,
    window: str,
    description: str,
    findings: Mapping[str, str],
) -> list[Slices]:
    """Path as slices of one track, and its window as one slice.

    Parameters
    ----------
    segments : DataFrame
        Schema `frames.SEGMENTS` or `frames.JOB_SEGMENTS`; if known, with causes in ``cause``, and
        what ran between operators in ``code``.
    ts_ns : ndarray of shape (n_segments,), dtype=int64, unit=ns
        Starts in the time of the file.
    tracks, strings
        Get new entries.
    flows : Flows
        Ends of arrows at segments.
    findings : mapping of str to str
        Text for each cause, the first finding first.
    """
    if segments.empty:
        return []
    first, stays_ns, ranks = _stays(segments)
    n_stays, n = len(first), len(first) + len(segments)
    start = np.concatenate([ts_ns[first], ts_ns])
    dur_ns = np.concatenate([stays_ns, segments["dur_ns"].to_numpy(np.int64)])
    words = {label: in_words(label) for label in Bound.labels()}
    what, bound = _Texts.of(segments["name"]), _Texts.of(segments["bound"])
    stays = strings.add(np.array([f"rank {rank}" for rank in ranks], dtype=object))
    # Viewers hash a text to a hue; texts that differ only at their end get hues side by side.
    hues = strings.add(np.array([f"{rank} on path" for rank in ranks], dtype=object))
    root, category = tracks.root("Critical path", description), strings.add([CRITICAL_PATH])
    path = Slices(
        ts_ns=start,
        dur_ns=dur_ns,
        track=np.broadcast_to(root, n),
        name=np.concatenate([stays, _named(bound.mapped(words), _about(segments, what), strings)]),
        category=np.broadcast_to(category, n),
        color=np.concatenate([hues, bound.mapped(_COLORS).numbers(strings)]),
        is_instant=np.zeros(n, dtype=bool),
        boundary=rows(np.zeros(n, dtype=np.int32), start, start + dur_ns).boundary,
        args=_args(segments, what, findings, strings, n_stays),
        flows=Flows(flows.row + n_stays, flows.id),
    )
    whole = Slices(
        ts_ns=ts_ns[:1],
        dur_ns=dur_ns[n_stays:].sum(keepdims=True),
        track=np.array([tracks.child("window", root)]),
        name=strings.add([window]),
        category=category,
        color=np.zeros(1, dtype=np.int64),
        is_instant=np.zeros(1, dtype=bool),
        boundary=np.arange(2),
        args=_total_args(segments, list(findings.values())[:_N_FINDINGS], strings),
    )
    return [path, whole]
