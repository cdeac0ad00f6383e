"""Findings: the causes of a critical path, ranked by what each costs, with evidence and advice.

The cost of a cause is what the run would be shorter by without it (`htagraph.replay.charges`): a
share of the path ignores what runs at the same time and is the next bottleneck. Where no cause
costs much, another chain takes nearly as long at the same time, and neither helps alone. It is
often off the critical path, so it is looked for where the path runs without the first cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import distinct
from htagraph.arrays.intervals import sum_by_code
from htagraph.findings.context import Context, Light, Seen
from htagraph.findings.rules import advice_on, recording_advice
from htagraph.findings.verdict import (
    LATE,
    LEAST_CARD,
    Evidence,
    Finding,
    Fix,
    Pair,
    Verdict,
    ordered,
)
from htagraph.lookup.programs import WITHIN
from htagraph.model.kinds import Bound, Cause
from htagraph.model.labels import distinct_names, name_label
from htagraph.model.names import without_step_number
from htagraph.model.units import human_duration
from htagraph.queries.quality import UNKNOWN_LIMIT
from htagraph.replay.changes import Change
from htagraph.replay.predictions import UNRANKED, Trials, together

TITLES = {cause: cause.value[0].upper() + cause.value[1:] for cause in Cause} | {
    Cause.LATE_RANK: "Rank {rank} is late",
    Cause.PIPELINE: "A part of the pipeline is slower than its peers",
    Cause.EXPERT_IMBALANCE: "Ranks work on more tokens than the mean",
}
"""The cause of each finding, for people: its label, if the run does not say more."""
_TITLE_PLAIN = "Program functions"
_IF_GONE = {
    Cause.LATE_RANK: "if it kept up",
    Cause.PIPELINE: "if it were as fast as its peers",
    Cause.EXPERT_IMBALANCE: "if tokens were balanced",
}
"""The condition of the run without a cause, if that is neither "without it" nor "without them"."""
_UNTRACED = "untraced code"
_CODE_OR_WAIT = "code or a wait"
_UNREAD_CODE = "Python not read (--stacks)"
NOTHING_MATCHED = (
    "no collectives could be matched between ranks with aligned clocks, so it is unknown how long "
    "they waited for each other; report on each rank separately, or capture the same steps of one "
    "run on all ranks, with NCCL metadata."
)

_MOST = 0.5
"""Part of a finding from which on most of it lies in a range. Chosen. Pinned with `_EVERYWHERE` by
test_findings.
"""

_EVERYWHERE = 0.9
"""Share of the window from which on a range tells nothing: all runs in it. Chosen."""

_NAMED = (
    Cause.LATE_RANK,
    Cause.GPU_SYNCHRONIZATION,
    Cause.UNRECORDED_WAIT,
    Cause.SYNCHRONOUS_COPIES,
    Cause.CPU_WORK,
    Cause.CPU_OPERATORS,
    Cause.SMALL_OPERATORS,
    Cause.HOST_CODE,
    Cause.PYTHON_WAITS,
)
"""Causes of host time that do not say what the program does."""


def range_times(attributed_time: pd.DataFrame) -> Mapping[str, int]:
    """Time in each range, with that of the ranges in it; in ns."""
    by_nest = attributed_time.groupby("ranges", observed=True)["dur_ns"].sum()
    times: Counter[str] = Counter()
    for nest, dur_ns in by_nest.items():
        for name in set(filter(None, str(nest).split(WITHIN))):
            times[name] += int(dur_ns)
    return times


def main_range(
    cause: Cause, part: pd.DataFrame, window_times: Mapping[str, int], window_ns: int
) -> str:
    """The smallest range with more than half of a finding's host time; empty for none."""
    if cause not in _NAMED:
        return ""
    times, least_ns = range_times(part), _MOST * part["dur_ns"].sum()
    found = [
        (window_times[name], -times[name], name)
        for name in times
        if times[name] > least_ns and window_times[name] < _EVERYWHERE * window_ns
    ]
    return min(found)[2] if found else ""


_N_EVIDENCE = 3
"""Contributors that a finding names. Pinned by test_findings."""

_BY_OP = (
    Cause.GPU_SYNCHRONIZATION,
    Cause.UNRECORDED_WAIT,
    Cause.SYNCHRONOUS_COPIES,
    Cause.FULL_QUEUE,
    Cause.COPIES,
)
"""Causes whose calls and copies have few names: the operator tells them apart."""

_LINE_WIDTH = 80
"""Characters of a line of Python code, with its file: long paths are cut. A limit of the screen:
`Evidence.frame` has all. Pinned by test_findings.
"""


def advice_off_path(run: Context, window_ns: int, cause: Cause, cost_ns: int) -> Fix:
    """What to do about a cause that the critical path does not run through."""
    none = Evidence("", "", "", -1, "", 0, "", 0)
    return advice_on(Seen(cause, run, none, "", path_ns=0, cost_ns=cost_ns, window_ns=window_ns))


def roof_in_words(light: Light) -> str:
    """How near its operators are to the roofs of the device, if little is left to gain there."""
    if light.operator or not light.roof_share:
        return ""
    return f"Its operators run at {light.roof_share:.0%} of their roofs: only fewer of them help."


def costs_by_cause(opportunities: pd.DataFrame) -> dict[tuple[str, int], int]:
    """What each cause costs, by its label and late rank (-1), of `answers.OPPORTUNITIES`."""
    rows = opportunities[opportunities["kind"] == "cause"]
    columns = (rows[name].tolist() for name in ("cause", "late_rank", "saves_ns"))
    return {(str(cause), int(rank)): int(ns) for cause, rank, ns in zip(*columns, strict=True)}


@dataclass(frozen=True)
class Told:
    """What findings need in addition to the attributed time."""

    context: Context
    unread_stacks: bool
    costs: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """What each cause costs, by its label and late rank (-1); empty if nothing was replayed."""
    machines: Mapping[int, str] = field(default_factory=dict)
    """Ranks of machines that are late, and their machine: they are one finding."""


def charged(attributed_time: pd.DataFrame, window: str, window_ns: int, told: Told) -> Verdict:
    """Verdict on the attributed time of a window.

    Rows may be sums of several pieces, with their number ``n`` and the ``longest_ns`` of them.
    """
    if not window_ns:
        return Verdict((), "nothing was recorded in this window.", window=window)
    # Time charged to a late rank may be unexplained as well.
    unknown = attributed_time[attributed_time["bound"] == Bound.UNKNOWN_WAITS.label]
    unexplained = int(unknown["dur_ns"].sum()) / window_ns
    if unexplained > UNKNOWN_LIMIT:
        longest = unknown.iloc[int(unknown[_longest(unknown)].to_numpy().argmax())]
        return Verdict(
            (),
            f"{unexplained:.0%} of the critical path is unknown waits (limit "
            f"{UNKNOWN_LIMIT:.0%}). The longest is "
            f"{human_duration(int(longest[_longest(unknown)]))}, before "
            f"{name_label(str(longest['name']))}.",
            window=window,
            dur_ns=window_ns,
        )
    times = range_times(attributed_time)
    found = [
        _within(_finding(cause, part, window_ns, told), main_range(cause, part, times, window_ns))
        for cause, part in _parts(attributed_time, told)
    ]
    is_unranked = attributed_time["cause"].isin(UNRANKED)
    unranked = attributed_time[is_unranked].groupby("cause", observed=True)["dur_ns"].sum()
    apart = tuple((str(cause), int(dur_ns)) for cause, dur_ns in unranked.items())
    assert sum(one.path_ns for one in found) + sum(dur_ns for _, dur_ns in apart) == window_ns
    return Verdict(ordered(tuple(found)), window=window, dur_ns=window_ns, apart=apart)


def _parts(attributed_time: pd.DataFrame, told: Told) -> Iterator[tuple[Cause, pd.DataFrame]]:
    """The time of each ranked cause, of late ranks each; one at a time, as they are large."""
    number, causes = pd.factorize(attributed_time["cause"])
    if "rank" in attributed_time.columns:
        late = attributed_time["rank"].where(attributed_time["cause"] == Cause.LATE_RANK, -1)
        of_rank, ranks = pd.factorize(late.replace(together(told.machines)))
        number, first = pd.factorize(number * len(ranks) + of_rank)
        causes = causes[first // len(ranks)]
    for at, cause in enumerate(causes):
        if cause not in UNRANKED:
            mine = number == at
            yield Cause(str(cause)), attributed_time if mine.all() else attributed_time[mine]


def _longest(attributed_time: pd.DataFrame) -> str:
    """The column with the longest piece of each row."""
    return "longest_ns" if "longest_ns" in attributed_time else "dur_ns"


def _within(finding: Finding, name: str) -> Finding:
    """The finding with the range that most of it lies in, if any."""
    if not name:
        return finding
    within = f"most of it in {name_label(name)}"
    return replace(finding, detail="; ".join(filter(None, (within, finding.detail))))


def _finding(cause: Cause, part: pd.DataFrame, window_ns: int, told: Told) -> Finding:
    """Finding of one cause."""
    bounds = (
        part.groupby("bound", observed=True)["dur_ns"]
        .sum()
        .sort_values(ascending=False, kind="stable")
    )
    ranks = (
        part.groupby("rank")["dur_ns"].sum().sort_values(ascending=False, kind="stable")
        if "rank" in part
        else None
    )
    path_ns = int(part["dur_ns"].sum())
    late = int(ranks.index[0]) if cause is Cause.LATE_RANK and ranks is not None else -1
    late = together(told.machines).get(late, late)
    cost_ns = told.costs.get((cause, late))
    if cost_ns is not None:
        # The run is convex in the time of a cause. Not so a late rank: the time charged to it is
        # what it took longer than the runner-up, who waits in turn.
        cost_ns = min(max(cost_ns, 0), window_ns if cause is Cause.LATE_RANK else path_ns)
    steps = part.loc[part["step"] != "", "step"].drop_duplicates().tolist()
    longest = _longest(part)
    title, evidence = TITLES[cause], _evidence(cause, part, unread=told.unread_stacks)
    if cause is Cause.LATE_RANK and ranks is not None:
        title = title.format(rank=ranks.index[0])
    elif cause is Cause.CPU_OPERATORS and told.context.is_plain:
        title = _TITLE_PLAIN
    seen = Seen(
        cause,
        told.context,
        evidence[0],
        str(bounds.index[0]),
        _around(part),
        told.unread_stacks,
        path_ns,
        path_ns if cost_ns is None else cost_ns,
        window_ns,
    )
    return Finding(
        cause=cause.value,
        title=title,
        cost_ns=cost_ns,
        path_ns=path_ns,
        window_ns=window_ns,
        n_segments=_n_segments(part),
        longest_ns=int(part[longest].max()),
        longest_start_ns=int(part["start_ns"].to_numpy()[part[longest].to_numpy().argmax()]),
        n_steps=len(steps),
        first_step=steps[0] if steps else "",
        last_step=steps[-1] if steps else "",
        parts=tuple(zip(bounds.index.astype(str), bounds.tolist(), strict=True)),
        evidence=evidence,
        fix=advice_on(seen),
        to_record=recording_advice(seen),
        ranks=tuple(zip(ranks.index.tolist(), ranks.tolist(), strict=True))
        if ranks is not None
        else (),
        detail=_overlapped(cause, told.context),
        if_gone=_IF_GONE.get(cause, ""),
    )


def _overlapped(cause: Cause, run: Context) -> str:
    """How much of the communication is hidden already, in words."""
    if cause is not Cause.COMMUNICATION or not run.overlapped_share:
        return ""
    return f"compute overlaps {run.overlapped_share:.1%} of the time of all collectives"


def _n_segments(part: pd.DataFrame) -> int:
    return int(part["n"].sum()) if "n" in part else len(distinct(part["segment"].to_numpy()))


def _around(part: pd.DataFrame) -> str:
    """Operator or annotation around most of some time; empty if none."""
    codes, texts = _coded(part["op"])
    times = sum_by_code(codes, part["dur_ns"].to_numpy(np.int64), len(texts))
    times[[text == "" for text in texts]] = 0
    if not times.any():
        return ""
    most = np.flatnonzero(times == times.max())
    return str(texts[codes[np.isin(codes, most).argmax()]])  # of two as long, the first


def _evidence(cause: Cause, part: pd.DataFrame, *, unread: bool) -> tuple[Evidence, ...]:
    """Names with most of the attributed time, for some causes with the operator."""
    dur_ns = part["dur_ns"].to_numpy(np.int64)
    group = _contributors(part, by_op=cause in _BY_OP)
    total_ns, longest_ns = np.zeros((2, group.max() + 1), dtype=np.int64)
    np.add.at(total_ns, group, dur_ns)
    np.maximum.at(longest_ns, group, dur_ns)
    # Each is named by its longest part; of two as long, the one with the longer part is first.
    rows = np.flatnonzero(dur_ns == longest_ns[group])[::-1]
    longest = np.empty(len(total_ns), dtype=np.int64)
    longest[group[rows]] = rows
    top = np.lexsort((longest, -dur_ns[longest], -total_ns))[:_N_EVIDENCE]
    of_top = part.iloc[longest[top]].to_dict("records")
    called = [without_step_number(str(row["name"])) for row in of_top]
    short = distinct_names(called)
    counted = part[[name for name in ("n", "segment") if name in part]]
    n_segments = [_n_segments(counted[group == number]) for number in top]
    found = zip(of_top, called, total_ns[top].tolist(), n_segments, strict=True)
    return tuple(
        Evidence(
            name,
            row["op"],
            row["frame"],
            row["event"],
            _label(cause, name, short[name], row, unread=unread),
            sum_ns,
            row["bound"],
            n,
        )
        for row, name, sum_ns, n in found
    )


def _contributors(part: pd.DataFrame, *, by_op: bool) -> npt.NDArray[np.intp]:
    """Number of the contributor of each row: its name, and its operator or where its code is.

    Names lose the numbers of steps; a line of code counts whatever its name.
    """
    codes, texts = _coded(part["name"])
    unnumbered, _ = pd.factorize(np.array([without_step_number(text) for text in texts], object))
    group = unnumbered[codes] + 1
    for column in ("op", "frame") if by_op else ("frame", "place"):
        codes, texts = _coded(part[column])
        if column == "frame" and not by_op:
            group[np.array([text != "" for text in texts])[codes]] = 0
        group = group * len(texts) + codes
    number: npt.NDArray[np.intp] = pd.factorize(group)[0]
    return number


def _coded(column: pd.Series[str]) -> tuple[npt.NDArray[np.integer], list[str]]:
    """The code of each row of a column, and the text of each code."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), column.cat.categories.tolist()
    codes, texts = pd.factorize(column.to_numpy(object))
    return codes, list(texts)


def _label(
    cause: Cause, name: str, short: str, row: Mapping[Hashable, str], *, unread: bool
) -> str:
    """Evidence in words: a short name, the place of a wait, or what is not recorded."""
    op, bound = row["op"], row["bound"]
    line = name_label(row["frame"], width=_LINE_WIDTH) if row["frame"] else ""
    if bound == Bound.UNKNOWN_WAITS.label:
        return f"unknown wait{'' if name.startswith('(') else f' before {short}'}"
    if cause in _BY_OP:
        within = f" in {name_label(op)}" if op not in ("", name) else ""
        return short + within + (f" at {line}" if line else "")
    if cause is Cause.WAITING_FOR_SMS:
        waiting = row["place"].partition(" ")[2]
        return f"{name_label(waiting)} waits for {short}" if waiting else short
    if line and cause is Cause.PYTHON_WAITS:
        runs = f", which runs {name_label(row['meanwhile'])}" if row["meanwhile"] else ""
        line += f" {row['place']}{runs}"
    if line:
        return line
    if cause is Cause.SMALL_OPERATORS:
        return f"{short} and the code before it"
    is_code = cause is Cause.HOST_CODE or bound == Bound.UNTRACED_CODE.label
    return _unread_code(name, short, row, unread=unread) if is_code else short


def _unread_code(name: str, short: str, row: Mapping[Hashable, str], *, unread: bool) -> str:
    """Code whose line was not recorded, by its neighbours."""
    where, _, neighbour = row["place"].partition(" ")
    # A step says little where the neighbour is known.
    is_named = not name.startswith("(") and not (neighbour and name == "ProfilerStep")
    parts = [f"in {short}" if is_named else "", f"{where} {name_label(neighbour)}".strip()]
    what = _UNREAD_CODE if unread else _UNTRACED
    if row["meanwhile"]:
        thread, _, op = row["meanwhile"].partition(" ran ")
        what = _CODE_OR_WAIT
        parts.append(f"while {thread} ran {name_label(op)}")
    return " ".join([what, ", ".join(filter(None, parts))]).strip()


_LITTLE = 1 / 3
"""Largest cost, as a share of the run, below which a second chain is looked for. Found on 151 real
runs. Pinned by test_ranking.
"""

_MORE = 0.2
"""What two causes cost together beyond the sum of both, as a share of the run, from which on they
run side by side. Found on the same: 16 pairs have 29% and more, the others 19.7% and less. Pinned
by test_ranking.
"""

_UNKNOWN = 0.5
"""Share of the next path from which on unknown waits are what limits the run without a cause.
Chosen. Pinned by test_ranking.
"""


def completed(
    verdict: Verdict, trials: Trials[Any], advise: Callable[[Cause, int], Fix], *, by: float = 1.0
) -> Verdict:
    """The verdict with causes that run side by side, and with what its printed fixes save.

    `advise`: what to do about a cause off the path, by what it costs alone, in ns. `by`: how many
    times as long as what is replayed the window is.
    """
    return _with_fixes(_side_by_side(verdict, trials, advise, by), trials, by)


def _side_by_side(
    verdict: Verdict, trials: Trials[Any], advise: Callable[[Cause, int], Fix], by: float
) -> Verdict:
    """The verdict with two causes side by side, if no cause costs a third of the run."""
    findings, whole_ns = verdict.findings, verdict.dur_ns
    if not findings or any(one.cost_ns is None for one in findings):
        return verdict
    first, widest = findings[0], max(findings, key=lambda one: one.path_ns)
    most_ns = max(one.weight_ns for one in findings)
    if most_ns >= _LITTLE * whole_ns or (first.cause in LATE and first.share >= LEAST_CARD):
        return verdict

    def without(*causes: tuple[str, int]) -> int:
        """What the run is shorter by without some causes."""
        changes = [change for cause in causes for change in trials.changes_of(*cause)]
        saved_ns: int = trials.rehearsal.saved_ns(changes)
        return min(round(by * saved_ns), whole_ns)

    pairs = []
    for one in dict.fromkeys([first, widest]):
        then = trials.next_causes(*_key(one))
        if one is widest and most_ns < LEAST_CARD * whole_ns:
            unknown_ns = sum(then.get(cause, 0) for cause in UNRANKED)
            if unknown_ns >= _UNKNOWN * max(sum(then.values()), 1):
                return replace(verdict, is_hidden=True)
        near = (cause for cause in then if cause not in (*UNRANKED, *LATE, one.cause))
        other = next(near, None)
        if other is None:
            continue
        mine = next((found for found in findings if found.cause == other), None)
        alone_ns = max(without((other, -1)), 0) if mine is None else mine.weight_ns
        together_ns = without(_key(one), (other, -1))
        if together_ns - one.weight_ns - alone_ns >= _MORE * whole_ns:
            partner = mine or _off_the_path(one, other, alone_ns, advise(other, alone_ns))
            pair = sorted((one, partner), key=lambda found: -found.weight_ns)
            pairs.append(Pair((pair[0], pair[1]), together_ns))
    if not pairs:
        return verdict
    return replace(verdict, pair=max(pairs, key=lambda pair: pair.together_ns))


def _key(finding: Finding) -> tuple[str, int]:
    """The cause of a finding, and its late rank."""
    is_late = finding.cause == Cause.LATE_RANK
    return finding.cause, finding.ranks[0][0] if is_late else -1


def _off_the_path(like: Finding, cause: Cause, cost_ns: int, fix: Fix) -> Finding:
    """A cause that the critical path does not run through."""
    return Finding(
        cause=cause.value,
        title=TITLES[cause],
        cost_ns=cost_ns,
        path_ns=0,
        window_ns=like.window_ns,
        n_segments=0,
        longest_ns=0,
        longest_start_ns=like.longest_start_ns,
        n_steps=0,
        first_step="",
        last_step="",
        parts=(),
        evidence=(),
        fix=fix,
    )


def _with_fixes(verdict: Verdict, trials: Trials[Any], by: float) -> Verdict:
    """The verdict with what the fixes on its cards save: each printed change is replayed."""
    replayed: dict[str, Finding] = {}
    for one in verdict.top_findings:
        if one.fix.change is not None:
            replayed[one.label] = replace(one, fix=_replayed(one, trials, [one.fix.change], by))
    found = tuple(replayed.get(one.label, one) for one in verdict.findings)
    pair = verdict.pair
    if pair:
        first, second = (replayed.get(one.label, one) for one in pair.findings)
        pair = pair._replace(findings=(first, second))
    return replace(verdict, findings=found, pair=pair)


def _replayed(one: Finding, trials: Trials[Any], changes: Sequence[Change], by: float) -> Fix:
    """A fix with what it saves: no more than the cause costs, as it repairs nothing else."""
    saving = trials.rehearsal.saving(changes)
    ends = (saving.expected_ns, saving.low_ns, saving.high_ns)
    saves_ns, low_ns, high_ns = (min(max(round(by * end), 0), one.weight_ns) for end in ends)
    return one.fix._replace(saves_ns=saves_ns, low_ns=low_ns, high_ns=high_ns)
