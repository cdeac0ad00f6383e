"""Limits for a run: on its own times, and against a baseline.

A limit that cannot be checked is withheld: neither passed nor broken. A check with a withheld limit
has not passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, isinf
from typing import Literal

from htagraph.arrays.welch import FEWEST
from htagraph.comparison.run_diff import RunDiff, damage_by_side
from htagraph.comparison.run_profile import RunProfile
from htagraph.errors import QueryError
from htagraph.model.units import human_duration, human_percent

State = Literal["passed", "broken", "withheld"]

DEFAULT_FAIL_ABOVE = 0.05
"""Share by which a run may be slower than its baseline, by default. Documented in `docs/gate.md`.
Pinned by test_damage."""

_DAMAGED = "the recording is damaged"
_ACCEPT = " Record it again, or check it as it is: --accept-damage."

NAMES = {
    "max-step": "typical step time",
    "max-exposed": "exposed communication in typical steps",
    "max-idle": "GPU idle in typical steps",
    "max-unknown": "unknown waits in typical steps",
    "fail-above": "slowdown",
}
"""What each limit is about, in words: not the figures of the window, which has all steps."""

RESULTS: dict[State, str] = {"passed": "passed", "broken": "failed", "withheld": "unknown"}

_MOST_STEPS = 1_000
"""Longest capture that a check suggests, in steps: a longer one is not practical. Chosen:
test_damage."""


@dataclass(frozen=True)
class Limits:
    """Limits of a run; None is no limit. All but `max_step`, in ns, are shares of 1."""

    max_step: float | None = None  # In ns. Mean length of its typical steps.
    # max_exposed, max_idle: share of the steps in which devices communicate without computing, or
    # are idle
    max_exposed: float | None = None
    max_idle: float | None = None
    # Share of the critical path whose wait no recorded dependency explains
    max_unknown: float | None = None
    fail_above: float | None = None  # Share by which steps may be longer than those of a baseline


@dataclass(frozen=True)
class Checked:
    """One limit, ``max-step`` for example, and the value of the run, None if unknown."""

    limit: str
    value: float | None
    allowed: float
    state: State
    said: str = ""  # What a reader has to know, such as why the limit is withheld

    def in_words(self, value: float | None) -> str:
        """A value of this limit in words."""
        if value is None:
            return "unknown"
        return human_duration(value) if self.limit == "max-step" else human_percent(value)

    def __str__(self) -> str:
        """The value and what is allowed; or why the value is unknown."""
        measured = f"{NAMES[self.limit]} {self.in_words(self.value)}"
        return self.said or f"{measured}, limit {self.in_words(self.allowed)}"


@dataclass(frozen=True)
class Check:
    """A run with its checked limits, and its difference from a baseline, if there is one."""

    run: RunProfile
    limits: tuple[Checked, ...]
    diff: RunDiff | None = None
    damage: tuple[str, ...] = ()  # Why limits are withheld that could be checked, in sentences

    @property
    def state(self) -> State:
        """Broken if any limit is; else withheld if any is."""
        states = {one.state for one in self.limits}
        return next((one for one in ("broken", "withheld") if one in states), "passed")

    def verdict(self) -> str:
        """The result of the check in one line, with the figures that decide it."""
        said = list(dict.fromkeys(str(one) for one in self.limits if one.state == self.state))
        if self.state == "passed" and len(said) > 1:
            said = [f"all {len(said)} limits"]
        accept = _ACCEPT if self.damage else ""
        return f"{RESULTS[self.state].capitalize()}: {'; '.join(said)}.{accept}"

    @property
    def notes(self) -> list[str]:
        """What is damaged, what changed if the verdict does not tell it, and what was checked."""
        if self.diff is None:
            return [*self.run.damage, self.run.facts]
        changed = self.diff.verdict()
        is_told = changed.partition(": ")[2].rstrip(".") in self.verdict()
        return [*([] if is_told else [changed]), *self.diff.notes]


def check_run(
    run: RunProfile,
    limits: Limits,
    *,
    baseline: RunProfile | None = None,
    is_step: bool = False,
    accept_damage: bool = False,
) -> Check:
    """Check a run against limits, and against a baseline.

    `is_step`: check the window as one step. By default a damaged recording withholds all limits
    that need it; `accept_damage` checks them.
    """
    if limits.fail_above is not None and baseline is None:
        raise QueryError("--fail-above needs a baseline.", hint="give --baseline FILE.")
    found = RunDiff(baseline, run) if baseline else None
    checked = [*_of_itself(run, limits, is_step=is_step)]
    if found:
        allowed = DEFAULT_FAIL_ABOVE if limits.fail_above is None else limits.fail_above
        checked.append(_against(found, allowed))
    if not checked:
        raise QueryError("there is nothing to check.", hint="give --max-step or --baseline.")
    if accept_damage:
        return Check(run, tuple(checked), found)
    damage = damage_by_side(run, baseline) if baseline else run.damage
    withheld = tuple(
        replace(one, state="withheld", said=_DAMAGED)
        if run.damage or (damage and one.limit == "fail-above")
        else one
        for one in checked
    )
    return Check(run, withheld, found, damage)


def _of_itself(run: RunProfile, limits: Limits, *, is_step: bool) -> Iterator[Checked]:
    """The limits that need no baseline."""
    no_device = "no device work was recorded"
    few = run.most_are_odd
    no_step = "" if run.unit == "step" or is_step else "the trace has no steps: name a window"
    values = (
        ("max-step", limits.max_step, None if no_step else run.typical_step_ns, no_step),
        ("max-exposed", limits.max_exposed, run.share("device", "communication"), no_device),
        ("max-idle", limits.max_idle, run.share("device", "idle"), no_device),
        ("max-unknown", limits.max_unknown, run.share("bound", "unknown_waits"), "no path"),
    )
    for name, allowed, value, why_not in values:
        if allowed is None:
            continue
        if value is None or few:
            why = f"{NAMES[name]}: {few or why_not}"
            yield Checked(name, value, allowed, "withheld", why)
        else:
            yield Checked(name, value, allowed, "broken" if value > allowed else "passed")


def _against(found: RunDiff, allowed: float) -> Checked:
    """Whether a run is slower than its baseline by more than noise and more than is allowed.

    Withheld if the machine may be the reason; or if noise alone exceeds what is allowed and no
    change is seen: it could hide one.
    """
    share, noise, changed = found.delta_share, found.noise_share, found.verdict()
    said = f"{changed[0].lower()}{changed[1:-1]}".replace(
        ": ", f", limit {human_percent(allowed)}: ", 1
    )
    state: State = "passed"
    if found.not_comparable:
        state, said = "withheld", f"not comparable: {'; '.join(found.not_comparable)}"
    elif found.doubt and share > allowed:
        state = "withheld"
    elif found.is_change:
        state = "broken" if share > allowed else "passed"
    elif noise > allowed:
        state, said = "withheld", _too_noisy(found, allowed)
    return Checked("fail-above", share, allowed, state, said)


def _too_noisy(found: RunDiff, allowed: float) -> str:
    """Why a change may be hidden, and how many steps would show it."""
    noise, fewest = found.noise_share, min(found.before.n_compared, found.after.n_compared)
    if isinf(noise):
        return f"noise is unknown: profile at least {FEWEST} typical steps"
    enough = ceil(fewest * (noise / allowed) ** 2) if allowed > 0 else _MOST_STEPS
    more = f"profile about {enough:,} typical steps each"
    more = more if enough < _MOST_STEPS else "raise the limit"
    return f"noise ({found.noise_in_words}) exceeds the limit of {human_percent(allowed)}: {more}"
