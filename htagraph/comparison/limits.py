"""Limits for a run: what it may take by itself, and how much slower than a baseline it may be.

An answer that cannot be given is withheld, which is neither passed nor broken; a check with one
that is withheld has not passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, isinf
from typing import Literal

from htagraph.algorithms.welch import FEWEST
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import RunProfile
from htagraph.errors import QueryError
from htagraph.model.units import human_duration

__all__ = ["DEFAULT_FAIL_ABOVE", "Check", "Checked", "Limits", "State", "check_run"]

State = Literal["passed", "broken", "withheld"]

DEFAULT_FAIL_ABOVE = 0.05
"""Share by which a run may be slower than its baseline, where nothing else is said."""

_MOST_ODD = 0.5
_MOST_STEPS = 1_000


@dataclass(frozen=True)
class Limits:
    """What a run may take; None is no limit.

    Parameters
    ----------
    max_step : float, optional, unit=ns
        Mean length of its alike steps.
    max_exposed : float, optional
        Share of the steps in which devices communicate without computing.
    max_idle : float, optional
        Share of the steps in which devices are idle.
    max_unexplained : float, optional
        Share of the critical path for which no recorded dependency says what it waited for.
    fail_above : float, optional
        Share by which steps may be longer than those of a baseline.
    """

    max_step: float | None = None
    max_exposed: float | None = None
    max_idle: float | None = None
    max_unexplained: float | None = None
    fail_above: float | None = None


@dataclass(frozen=True)
class Checked:
    """One limit, and what the run takes.

    Parameters
    ----------
    limit : str
        Its name: ``max-step``.
    value, allowed : float or None
        Nanoseconds of ``max-step``, shares of 1 elsewhere; no value where it is not known.
    state : {"passed", "broken", "withheld"}
    said : str
        What one has to know, why it is withheld for one.
    """

    limit: str
    value: float | None
    allowed: float
    state: State
    said: str = ""

    def in_words(self, value: float | None) -> str:
        """A value of this limit as people read it."""
        if value is None:
            return "unknown"
        if self.limit == "max-step":
            return human_duration(value)
        return f"{value:+.1%}" if self.limit == "fail-above" else f"{value:.1%}"


@dataclass(frozen=True)
class Check:
    """A run held against its limits.

    Parameters
    ----------
    diff : RunDiff, optional
        The baseline against the run.
    """

    run: RunProfile
    limits: tuple[Checked, ...]
    diff: RunDiff | None = None

    @property
    def state(self) -> State:
        """Broken if any limit is; withheld if any is not known to be kept."""
        states = {one.state for one in self.limits}
        return next((one for one in ("broken", "withheld") if one in states), "passed")

    def verdict(self) -> str:
        """What the check found, in a sentence or two."""
        named = {
            state: ", ".join(one.limit for one in self.limits if one.state == state)
            for state in ("broken", "withheld")
        }
        said = {
            "passed": "Passed.",
            "broken": f"Failed: {named['broken']}.",
            "withheld": f"Not known: {named['withheld']}.",
        }[self.state]
        return f"{said} {self.diff.verdict()}" if self.diff else said


def check_run(
    run: RunProfile,
    limits: Limits,
    *,
    baseline: RunProfile | None = None,
    is_step: bool = False,
) -> Check:
    """A run held against limits.

    Parameters
    ----------
    baseline : RunProfile, optional
        An earlier run, which this one must not be slower than by more than ``fail_above``.
    is_step : bool, default=False
        A window that is no step was asked for, and is to be judged as one.

    Raises
    ------
    QueryError
        If there is nothing to check, or a limit to a baseline and no baseline.

    Examples
    --------
    >>> import htagraph as hg
    >>> run = hg.run_profile(hg.load(hg.demo_trace("none")))
    >>> check_run(run, Limits(max_step=4e6, max_idle=0.2)).verdict()
    'Failed: max-step.'
    """
    if limits.fail_above is not None and baseline is None:
        raise QueryError("a limit to be slower needs a baseline.", hint="give --baseline FILE.")
    found = RunDiff(baseline, run) if baseline else None
    checked = [*_of_itself(run, limits, is_step=is_step)]
    if found:
        allowed = DEFAULT_FAIL_ABOVE if limits.fail_above is None else limits.fail_above
        checked.append(_against(found, allowed))
    if not checked:
        raise QueryError("there is nothing to check.", hint="give --max-step or --baseline.")
    return Check(run, tuple(checked), found)


def _of_itself(run: RunProfile, limits: Limits, *, is_step: bool) -> Iterator[Checked]:
    """The limits that need no baseline."""
    no_device = "no device work was recorded"
    few = (
        f"{run.n_odd} of {run.n_steps} steps are not like the others"
        if run.n_odd > _MOST_ODD * run.n_steps
        else ""
    )
    no_step = "" if run.unit == "step" or is_step else "the trace has no steps: name a window"
    values = (
        ("max-step", limits.max_step, None if no_step else run.step_ns, no_step),
        ("max-exposed", limits.max_exposed, run.share("device", "communication"), no_device),
        ("max-idle", limits.max_idle, run.share("device", "idle"), no_device),
        ("max-unexplained", limits.max_unexplained, run.share("bound", "unexplained"), "no path"),
    )
    for name, allowed, value, why_not in values:
        if allowed is None:
            continue
        if value is None or few:
            yield Checked(name, value, allowed, "withheld", few or why_not)
        else:
            yield Checked(name, value, allowed, "broken" if value > allowed else "passed")


def _against(found: RunDiff, allowed: float) -> Checked:
    """Whether a run is slower than its baseline by more than is allowed.

    It is where the difference exceeds both noise and what is allowed. Where noise alone exceeds
    that, and no change is seen, nothing is known: a change as large might be there.
    """
    share, noise = found.delta_share, found.noise_share
    name = "fail-above"
    if found.not_comparable:
        said = f"not comparable: {'; '.join(found.not_comparable)}"
        return Checked(name, share, allowed, "withheld", said)
    if isinf(noise):
        said = f"noise is not known of fewer than {FEWEST} alike steps: profile more"
        return Checked(name, share, allowed, "withheld", said)
    said = f"noise {noise:.1%}"
    if found.is_change:
        return Checked(name, share, allowed, "broken" if share > allowed else "passed", said)
    if noise <= allowed:
        return Checked(name, share, allowed, "passed", said)
    fewest = min(found.before.n_compared, found.after.n_compared)
    enough = ceil(fewest * (noise / allowed) ** 2) if allowed > 0 else _MOST_STEPS
    more = (
        f"about {enough:,} alike steps each would do" if enough < _MOST_STEPS else "allow for more"
    )
    return Checked(name, share, allowed, "withheld", f"{said} hides what is allowed: {more}")
