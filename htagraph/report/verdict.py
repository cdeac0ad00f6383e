"""A verdict: the findings of a window, each a cause with its time, evidence and what to try."""

from __future__ import annotations

from dataclasses import dataclass

from htagraph.model.kinds import Cause
from htagraph.model.units import human_count, human_duration
from htagraph.report.advice import RANKING

__all__ = ["Evidence", "Finding", "Verdict"]

_N_FIRST = 3
_MIN_SHARE = 0.005
_N_RANKS = 3
_RANKED_SHARE = {Cause.COMPUTE: 0.5}
"""Part of a potential saving that counts in the ranking, where not all of it does."""


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
        Line or frame of Python code that ran, empty where none was recorded.
    event : int
        Event of its longest part; -1 for none.
    label : str
        What a person reads.
    dur_ns : int, unit=ns
        Its part of the attributed time.
    bound : str
        Bound of most of it.
    n_segments : int
    """

    name: str
    op: str
    frame: str
    event: int
    label: str
    dur_ns: int
    bound: str
    n_segments: int


@dataclass(frozen=True)
class Finding:
    """A cause that part of a critical path is charged to.

    Parameters
    ----------
    cause : str
        Label of the `Cause`, for programs.
    title : str
        What it is, for people.
    dur_ns : int, unit=ns
        Attributed time; that of all findings and the unexplained time add up to the window.
    share : float
        Share of the window.
    n_segments : int
    potential_saving_ns : int, unit=ns
        How much shorter the window could be without the cause, at most: the attributed time,
        limited to what the busy time of other resources leaves of the window.
    longest_ns, longest_start_ns : int, unit=ns
        Length and start of the longest segment: where to look.
    n_steps : int
        Number of steps with attributed time.
    first_step, last_step : str
        The first and the last of these, empty for none.
    parts : tuple of (str, int)
        Bounds of the attributed time, with their time in ns; largest first.
    evidence : tuple of Evidence
        Largest contributors.
    to_try : str
        What may help; empty for 0.0% of the window.
    ranks : tuple of (int, int), default=()
        Of a job: ranks of the attributed time, with their part in ns; largest first.
    detail : str
        What else is known: how often a late rank was last, how much longer a rank's kernels take.
    limited_by : str
        What else is busy, where the potential saving is less than the attributed time.
    """

    cause: str
    title: str
    dur_ns: int
    share: float
    n_segments: int
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
    limited_by: str = ""

    @property
    def ranked_saving_ns(self) -> float:
        """Potential saving as it counts in the ranking."""
        return self.potential_saving_ns * _RANKED_SHARE.get(Cause(self.cause), 1.0)

    @property
    def limit(self) -> str:
        """Limit of the saving, and why; empty where all of the attributed time could be saved."""
        if not self.limited_by:
            return ""
        saving = self.potential_saving_ns / self.dur_ns * self.share
        return f"saves at most {saving:.0%}: {self.limited_by}"

    @property
    def where(self) -> str:
        """Ranks of the attributed time; empty on one trace, and for a late rank, which is named."""
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
        """Steps of the attributed time, empty where the trace has none."""
        if self.n_steps < 2:
            return f"in {self.first_step}" if self.n_steps else ""
        return f"in {self.n_steps:,} steps, {self.first_step} to {self.last_step}"

    @property
    def sentence(self) -> str:
        """The finding as one line of a report."""
        return f"{self.title}: {self.share:.1%} of the time ({human_duration(self.dur_ns)})"

    @property
    def evidence_sentence(self) -> str:
        """The largest contributors as one line."""
        items = (f"{item.label} {human_duration(item.dur_ns)}" for item in self.evidence)
        facts = (
            ", ".join(items),
            self.detail or f"{human_count(self.n_segments, 'segment')} in all",
            self.when,
            self.where,
            self.limit,
        )
        return "; ".join(filter(None, facts))


@dataclass(frozen=True)
class Verdict:
    """What bounds a window, or why that cannot be said.

    Parameters
    ----------
    findings : tuple of Finding
        Largest potential saving first; empty if the verdict is withheld.
    withheld : str
        Why there is no verdict; empty if there is one.
    replays : str
        Where most device time is replayed: whether launches or the graphs are what costs.
    """

    findings: tuple[Finding, ...]
    withheld: str = ""
    replays: str = ""

    @property
    def ranking(self) -> str:
        """Why a smaller share stands before a larger one; empty where none does."""
        shares = [finding.share for finding in self.top_findings]
        return "" if shares == sorted(shares, reverse=True) else RANKING

    @property
    def top_findings(self) -> tuple[Finding, ...]:
        """The first three findings, without negligible ones."""
        return tuple(finding for finding in self.findings if finding.share >= _MIN_SHARE)[:_N_FIRST]
