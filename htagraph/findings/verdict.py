"""A verdict: the findings of a window, each a cause with its time, evidence and advice."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal, NamedTuple

from htagraph.findings.advice import BINDS, NOT_RANKED, RANKING, REPAIRED, START_IDLE
from htagraph.model.kinds import Bound, Cause
from htagraph.model.labels import printable
from htagraph.model.units import human_count, human_duration
from htagraph.writers.notebook_cell import escaped

__all__ = ["Evidence", "Finding", "Paragraph", "Verdict", "cause_label"]

_N_FIRST = 3
"""Findings that a verdict prints. A limit of the screen: `Verdict.findings` has all.

Pinned by `test_verdict.py::test_three_findings_are_printed`.
"""

_N_DAMAGED = 3
"""Sentences on damage that a verdict prints. A limit of the screen: `Verdict.damage` has all.

Pinned by `test_verdict.py::test_three_sentences_on_damage_are_printed`.
"""

_MIN_SHARE = 0.005
"""Findings with a smaller share are not printed.

Chosen. Pinned by `test_verdict.py::test_a_finding_is_printed_from_half_a_percent_on`.
"""

_NONE = ("0%", "<1%")
"""Shares that are next to nothing: an interval from there on only says what a saving is at most.

Chosen. Pinned by `test_verdict.py::test_a_saving_that_may_be_nothing_is_called_at_most`.
"""

_NAMED = 0.02
"""Share of a cause that is named although it is not printed as a finding. Chosen.

Pinned by `test_verdict.py::test_a_large_cause_is_named_although_others_cost_more`.
"""

_BOUNDS: dict[str, str] = {
    Cause.UNKNOWN_WAITS: Bound.UNKNOWN_WAITS.label,
    Cause.WORK_FROM_BEFORE_THE_PROFILE: Bound.WORK_FROM_BEFORE_THE_PROFILE.label,
}
"""Bounds of the time that is apart."""

_SHOWN = 0.0005
"""Share of a window that prints as more than 0.0%."""

_N_RANKS = 3
"""Ranks that evidence names; the rest are counted. A limit of the screen: `Finding.ranks` has all.

Pinned by `test_verdict.py::test_three_ranks_are_named`.
"""

_WIDTH = 100
"""Columns of the terminal that a verdict fills. A limit of the screen, not of the answer.

Pinned by `test_verdict.py::test_lines_have_a_hundred_columns`.
"""

_STYLES = {
    "title": "font-weight:bold",
    "damage": "color:#a60",
    "balance": "font-weight:bold",
    "finding": "font-weight:bold",
    "withheld": "color:#a60",
    "advice": "font-style:italic",
    "note": "opacity:.7",
}
"""Styles of paragraphs in a notebook."""

_STANDS_OUT = 0.25
"""Cost of the first cause, as a share of the window, from which on it stands out.

Found on 151 real traces and jobs. Pinned by `test_ranking.py::test_two_equal_chains_are_balanced`.
"""

_HELD = 0.5
"""Share of the window that no cost accounts for, from which on chains run side by side.

Found and pinned with `_STANDS_OUT`.
"""

_FAR_BELOW = 0.5
"""Part of a cause's share below which its cost needs a reason. Chosen.

Pinned by `test_ranking.py::test_a_cost_far_below_the_share_says_why`.
"""

_WAITS = (
    Cause.GPU_SYNCHRONIZATION,
    Cause.SYNCHRONOUS_COPIES,
    Cause.FULL_QUEUE,
    Cause.WAITING_FOR_SMS,
)
"""Causes that are waits: their time is not work that could be faster."""

Role = Literal[
    "title",
    "damage",
    "balance",
    "withheld",
    "finding",
    "evidence",
    "cost",
    "advice",
    "prediction",
    "note",
]


class Paragraph(NamedTuple):
    """One paragraph of a verdict, with the indent of its lines."""

    role: Role
    text: str
    indent: int


def cause_label(cause: str, rank: int) -> str:
    """A cause, with its rank if it is a late one.

    Examples
    --------
    >>> cause_label("late rank", 2), cause_label("GPU synchronization", 2)
    ('late rank 2', 'GPU synchronization')
    """
    return f"{cause} {rank}" if cause == Cause.LATE_RANK else cause


@dataclass(frozen=True)
class Evidence:
    """One contributor to a finding.

    Parameters
    ----------
    name : str
        What ran, or the call that waited.
    op : str
        Innermost operator or annotation around most of it.
    frame : str
        Line or frame of Python code, empty if not recorded.
    event : int
        Event of its longest part; -1 for none.
    label : str
        The contributor in words.
    """

    name: str
    op: str
    frame: str
    event: int
    label: str
    dur_ns: int
    bound: str
    n_segments: int


@dataclass(frozen=True, repr=False)
class Finding:
    """A cause of a critical path, with the time attributed to it.

    Parameters
    ----------
    cause, title : str
        Label of the `Cause` for programs, and its title for people.
    dur_ns : int, unit=ns
        Attributed time; all findings and what is `Verdict.apart` add up to the window.
    cost_ns : int or None, unit=ns
        How much shorter the window is without it, on all threads, streams and ranks; None if the
        run was not replayed.
    then_bound : str
        The bottleneck without the cause; empty if unknown.
    potential_saving_ns : int, unit=ns
        Predicted saving of its repair, 0 if it has none that can be replayed.
    longest_ns, longest_start_ns : int, unit=ns
        Length and start of the longest segment.
    n_steps : int
        Number of steps with attributed time; `first_step` and `last_step` are empty for none.
    parts : tuple of (str, int)
        Bounds of the attributed time, with their time in ns; largest first.
    evidence : tuple of Evidence
        Largest contributors.
    to_try : str
        Advice; empty for 0.0% of the window.
    ranks : tuple of (int, int), default=()
        Of a job: ranks of the attributed time, with their part in ns; largest first.
    detail : str
        Further facts: how often a late rank was last, how much longer a rank's kernels take, how
        much of the communication is hidden.
    saving_low_ns, saving_high_ns : int, unit=ns
        The saving by other readings of what the trace leaves open.
    repaired_by : str
        The replayed repair, as for `what_if`; empty for none.
    """

    cause: str
    title: str
    dur_ns: int
    share: float
    n_segments: int
    cost_ns: int | None
    then_bound: str
    potential_saving_ns: int
    longest_ns: int
    longest_start_ns: int
    n_steps: int
    first_step: str
    last_step: str
    parts: tuple[tuple[str, int], ...]
    evidence: tuple[Evidence, ...]
    to_try: str
    ranks: tuple[tuple[int, int], ...] = ()
    detail: str = ""
    saving_low_ns: int = 0
    saving_high_ns: int = 0
    repaired_by: str = ""

    def __repr__(self) -> str:
        """Say what it is."""
        return f"Finding({self.sentence})"

    @property
    def label(self) -> str:
        """The cause, with its rank if it is a late one."""
        return cause_label(self.cause, self.ranks[0][0] if self.ranks else -1)

    @property
    def cost(self) -> str:
        """What the window loses to the cause, and the next bottleneck; empty if not replayed."""
        if self.cost_ns is None or not self.dur_ns:
            return ""
        shorter = f"{human_duration(self.cost_ns)} ({self._percent(self.cost_ns)}) shorter"
        if self.cause == Cause.LATE_RANK:
            low, high = self._percent(self.saving_low_ns), self._percent(self.saving_high_ns)
            spread = f" ({low} to {high})" if low != high else ""
            return f"had it come with the others, the window would be {shorter}{spread}"
        without = "had nothing waited here" if self.cause in _WAITS else "without it"
        then = BINDS[self.then_bound] if self.then_bound else ""
        if self.cost_ns < _FAR_BELOW * self.dur_ns:
            little = f"only {shorter}" if self.cost_ns else "no shorter"
            other = f"{then or 'other work'} takes nearly as long at the same time"
            return f"{without}, the window would be {little}: {other}"
        next_one = f"; then {then} is the bottleneck" if then else ""
        return f"{without}, the window would be at most {shorter}{next_one}"

    @property
    def prediction(self) -> str:
        """The predicted saving of its repair; empty if it has none that was replayed."""
        if not self.dur_ns or not self.repaired_by or self.cause == Cause.LATE_RANK:
            return ""  # a late rank that comes with the others: that is its cost
        saved = self._percent(self.potential_saving_ns)
        if saved == _NONE[0]:
            return ""
        low, high = self._percent(self.saving_low_ns), self._percent(self.saving_high_ns)
        if low == high == saved or high in _NONE:
            said = saved
        elif low in _NONE:  # the interval is only an upper bound
            said = f"at most {high}" if high == saved else f"{saved}, at most {high},"
        else:
            said = f"{saved} ({low} to {high})"
        how = (text for begins, text in REPAIRED.items() if self.repaired_by.startswith(begins))
        return f"saves {said} {next(how, 'if fixed')}"

    @property
    def gain(self) -> str:
        """In few words: the predicted saving, or how much shorter the window is without it."""
        if self.prediction:
            return self.prediction
        if self.cost_ns is None or not self.dur_ns:
            return ""
        if self.cause == Cause.LATE_RANK:
            return f"{self._percent(self.cost_ns)} shorter if it came with the others"
        shorter = f"at most {self._percent(self.cost_ns)} shorter" if self.cost_ns else "no shorter"
        return f"{shorter} without it"

    def _percent(self, time_ns: int) -> str:
        """Time as a share of the window; never 0% for time that is there."""
        percent = f"{time_ns * self.share / self.dur_ns:.0%}"
        return "<1%" if time_ns > 0 and percent == "0%" else percent

    @property
    def where(self) -> str:
        """Ranks of the attributed time; empty for one trace, and for a late rank."""
        if self.cause == Cause.LATE_RANK:
            return ""
        if len(self.ranks) == 1:
            return f"all on rank {self.ranks[0][0]}"
        parts = [
            f"{dur_ns / self.dur_ns:.0%} on rank {rank}" for rank, dur_ns in self.ranks[:_N_RANKS]
        ]
        if len(self.ranks) > _N_RANKS:
            parts.append(f"the rest on {human_count(len(self.ranks) - _N_RANKS, 'other')}")
        return ", ".join(parts)

    @property
    def when(self) -> str:
        """Steps of the attributed time, empty if the trace has none."""
        if self.n_steps < 2:
            return f"in {self.first_step}" if self.n_steps else ""
        return f"in {self.n_steps:,} steps, {self.first_step} to {self.last_step}"

    @property
    def sentence(self) -> str:
        """The finding as one line of a report."""
        return f"{self.title}: {self.share:.1%} of the path ({human_duration(self.dur_ns)})"

    @property
    def evidence_sentence(self) -> str:
        """The largest contributors as one line."""
        items = (f"{item.label} {human_duration(item.dur_ns)}" for item in self.evidence)
        return "; ".join(filter(None, (", ".join(items), self.detail, self.when, self.where)))


@dataclass(frozen=True, repr=False)
class Verdict:
    """What limits a window, or why that is unknown.

    Parameters
    ----------
    findings : tuple of Finding
        Largest cost first, near-ties by share; empty if the verdict is withheld.
    withheld : str
        Why there is no verdict; empty if there is one.
    replays : str
        If most device time is in captured graphs: whether launches or the graphs are the cost.
    low_ends : str
        What the low ends of savings mean, beyond what the trace leaves open.
    rests_on : str
        The part of the window that was replayed, if not all of it.
    window : str
        Name of the window.
    dur_ns : int, unit=ns
        Its length.
    apart : tuple of (str, int)
        Time that nothing in the run can be blamed for, in ns by cause. With the time of all
        findings it adds up to the window.
    damage : tuple of str
        What the recording lacks or has wrong, and what that does to the answer: sentences, the
        worst first.

    Examples
    --------
    >>> import htagraph as hg
    >>> print(hg.load(hg.demo_trace("dataloader")).compile().verdict())
    What limits the whole trace (24.0 ms)
      1. Data loading: 82.4% of the path (19.7 ms)
    ...
    """

    findings: tuple[Finding, ...]
    withheld: str = ""
    replays: str = ""
    low_ends: str = ""
    rests_on: str = ""
    window: str = "the window"
    dur_ns: int = 0
    apart: tuple[tuple[str, int], ...] = ()
    damage: tuple[str, ...] = ()

    @property
    def by_cause(self) -> dict[str, str]:
        """Card of each cause, the first finding first: title, cost, fix and evidence, a line each.

        A late rank is a cause of its own.
        """
        return {
            one.label: "\n".join(
                (
                    f"{one.title}, costs {(one.cost_ns or 0) / max(self.dur_ns, 1):.0%}",
                    f"cost: {human_duration(one.cost_ns or 0)}",
                    f"fix: {one.to_try}",
                    f"evidence: {one.evidence_sentence}",
                )
            )
            for one in self.findings
        }

    @property
    def balance(self) -> str:
        """That no cause stands out, and what runs side by side; empty if one does."""
        costs = [min(one.cost_ns, one.dur_ns) for one in self.findings if one.cost_ns is not None]
        if not costs or len(costs) < len(self.findings):
            return ""
        held_ns = sum(one.dur_ns for one in self.findings) - sum(costs)
        if held_ns <= _HELD * self.dur_ns or max(costs) >= _STANDS_OUT * self.dur_ns:
            return ""
        longest = max(self.findings, key=lambda one: one.dur_ns)
        chains = dict.fromkeys([longest.parts[0][0], longest.then_bound])
        both = " and ".join(BINDS[bound] for bound in chains if bound)
        both += "" if len([*filter(None, chains)]) > 1 else " and other work"
        shorter = f"{max(costs) / self.dur_ns:.0%} shorter"
        said = f"{both} run side by side. Without one, the window is at most {shorter}."
        return f"No one cause stands out: {said}"

    @property
    def rest(self) -> str:
        """The time that no printed finding has; empty for none."""
        other = [one for one in self.findings if one not in self.top_findings]
        named = [one for one in other if one.share >= _NAMED]
        small = sum(one.dur_ns for one in other) - sum(one.dur_ns for one in named)
        count = human_count(len(other) - len(named), "smaller cause")
        named.sort(key=lambda one: -one.dur_ns)
        parts = [*((one.label, one.dur_ns) for one in named), (count, small)]
        # What makes a rank late may be unexplained, too.
        within = {bound for one in self.findings for bound, _ in one.parts}
        parts += [
            (f"{cause} elsewhere" if _BOUNDS[cause] in within else cause, dur_ns)
            for cause, dur_ns in self.apart
        ]
        shares = (
            f"{what} {dur_ns / self.dur_ns:.1%}"
            for what, dur_ns in parts
            if dur_ns > _SHOWN * self.dur_ns > 0
        )
        said = ", ".join(shares)
        early_ns = dict(self.apart).get(Cause.WORK_FROM_BEFORE_THE_PROFILE, 0)
        is_early = early_ns > _MIN_SHARE * self.dur_ns
        return " ".join([f"The rest of the path: {said}."] * bool(said) + [START_IDLE] * is_early)

    @property
    def ranking(self) -> str:
        """Why a smaller share precedes a larger one, or that nothing was replayed."""
        if any(finding.cost_ns is None for finding in self.findings):
            return NOT_RANKED if all(one.cost_ns is None for one in self.findings) else RANKING
        shares = [finding.share for finding in self.top_findings]
        return "" if shares == sorted(shares, reverse=True) else RANKING

    @property
    def notes(self) -> str:
        """What is left of the window, and how to read the findings: ranking, basis of savings."""
        return " ".join(filter(None, [self.rest, self.ranking, self.low_ends, self.rests_on]))

    @property
    def top_findings(self) -> tuple[Finding, ...]:
        """The first three findings, without negligible ones."""
        return tuple(finding for finding in self.findings if finding.share >= _MIN_SHARE)[:_N_FIRST]

    @property
    def opens_at_ns(self) -> int | None:
        """Start of the longest part of the first finding; None without findings."""
        return next((one.longest_start_ns for one in self.top_findings), None)

    @property
    def top_damage(self) -> tuple[str, ...]:
        """The first sentences on damage, and how many there are besides."""
        more = len(self.damage) - _N_DAMAGED
        if more <= 0:
            return self.damage
        ask = f"And {human_count(more, 'more sentence')}: htagraph ask damage."
        return (*self.damage[:_N_DAMAGED], ask)

    @property
    def title(self) -> str:
        """The title: the window and its length."""
        return f"What limits {self.window} ({human_duration(self.dur_ns)})"

    @property
    def paragraphs(self) -> tuple[Paragraph, ...]:
        """The verdict in words, for terminal, notebook and page."""
        said = [Paragraph("title", self.title, 0)]
        said += [Paragraph("damage", text, 2) for text in self.top_damage]
        if self.balance:
            said.append(Paragraph("balance", self.balance, 2))
        if self.withheld:
            said.append(Paragraph("withheld", f"No verdict: {self.withheld}", 2))
        for number, finding in enumerate(self.top_findings, start=1):
            said.append(Paragraph("finding", f"{number}. {finding.sentence}", 2))
            said.append(Paragraph("evidence", f"largest: {finding.evidence_sentence}", 5))
            if finding.cost:
                said.append(Paragraph("cost", finding.cost, 5))
            if finding.to_try:
                said.append(Paragraph("advice", f"try: {finding.to_try}", 5))
            if finding.prediction:
                said.append(Paragraph("prediction", f"predicted: {finding.prediction}", 5))
        said += [Paragraph("note", text, 2) for text in (self.replays, self.notes) if text]
        return tuple(said)

    def __repr__(self) -> str:
        """The verdict as the terminal shows it."""
        return "\n".join(
            textwrap.fill(
                printable(text),
                width=_WIDTH,
                initial_indent=" " * indent,
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for _, text, indent in self.paragraphs
        )

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return "".join(
            f'<div style="margin-left:{indent}ch;{_STYLES.get(role, "")}">{escaped(text)}</div>'
            for role, text, indent in self.paragraphs
        )
