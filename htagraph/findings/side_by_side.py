"""Chains that run side by side: two causes of which neither helps alone.

Where no cause costs much, another chain takes nearly as long at the same time. It is often off the
critical path, so it is looked for where the path runs without the first cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from htagraph.findings.findings import TITLES
from htagraph.findings.verdict import LATE, LEAST_CARD, Finding, Fix, Pair, Verdict
from htagraph.model.kinds import Cause
from htagraph.replay.candidates import UNRANKED
from htagraph.replay.changes import Change
from htagraph.replay.predictions import Trials

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
