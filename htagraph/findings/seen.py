"""The facts that rules of advice read, what a rule is, and the advice that it gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from htagraph.explain.default_window import step_in_words
from htagraph.findings.context import Context
from htagraph.findings.verdict import Evidence
from htagraph.lookup.memory_frees import FreesWithin
from htagraph.model.collective_names import operation_of
from htagraph.model.kinds import Bound, Cause
from htagraph.model.labels import name_label
from htagraph.model.step_markers import step_number
from htagraph.replay.changes import Change

LENGTH = 165
"""Characters of advice at most: two lines of 88 columns, less their indent.

A limit of the screen. Pinned by `test_rules.py::test_advice_fits_into_two_lines`.
"""
_OPERATOR = 88
"""Characters of an operator with its shapes in advice, which has 77 more at most."""

_TELLS_OPERATION = re.compile(r"^(nccl|gloo|mpi|ucc|c10d|_c10d_functional):|^record_param_comms")


@dataclass(frozen=True)
class Seen:
    """The facts that a rule reads: the context of the window, and the contents of one finding.

    Parameters
    ----------
    run : Context
        Of a trace with `Context.compute`, if compute is much of the path.
    most : Evidence
        Its largest contributor.
    bound : str
        Bound of most of it.
    around : str
        Operator or annotation around most of it; empty if none.
    unread_stacks : bool
        The file has Python stacks that were not read.
    path_ns, cost_ns, window_ns : int, unit=ns
        Time of the path charged to the cause, what the window loses to it (0 if unknown), and the
        length of the window.
    """

    cause: Cause
    run: Context
    most: Evidence
    bound: str
    around: str = ""
    unread_stacks: bool = False
    path_ns: int = 0
    cost_ns: int = 0
    window_ns: int = 0

    @property
    def n_workers(self) -> int:
        """Workers that load all data in the time that the window takes without loading."""
        without_ns = max(self.window_ns - self.cost_ns, 1)
        return max(-(-self.path_ns // without_ns), 1)

    @property
    def operator(self) -> str:
        """The operator to speed up, with its shapes; empty if unknown."""
        return name_label(self.run.compute.operator, width=_OPERATOR)

    @property
    def _frees(self) -> tuple[FreesWithin, ...]:
        """Frees in the operator of its largest contributor, if that frees."""
        return tuple(one for one in self.run.frees if one.op == self.most.op)

    @property
    def freeing(self) -> str:
        """The operator in which its largest contributor is, if memory is freed there."""
        return name_label(self.most.op) if self._frees else ""

    @property
    def is_out_of_memory(self) -> bool:
        """Whether its largest contributor frees because an allocation failed."""
        return self.calls("Free|Unmap") and any(one.ran_out for one in self._frees)

    @property
    def when_out_of_memory(self) -> str:
        """In which steps an allocator was out of memory; empty if no step is known."""
        steps = {one.step for one in self.run.frees if one.ran_out and one.step}
        if not steps:
            return ""
        first = min(steps, key=lambda step: (step_number(step), step))
        more = f" and {len(steps) - 1} more" if len(steps) > 1 else ""
        return f" in {step_in_words(first)}{more}"

    @property
    def mean_ns(self) -> float:
        """Mean time of one occurrence of the largest contributor."""
        return self.most.dur_ns / max(self.most.n_segments, 1)

    @property
    def is_code(self) -> bool:
        """Whether most of it is unknown untraced code."""
        return not self.most.frame and (
            self.cause is Cause.HOST_CODE or self.most.bound == Bound.UNTRACED_CODE.label
        )

    @property
    def is_accompanied(self) -> bool:
        """Whether another thread ran operators during its largest contributor."""
        return " while thread " in self.most.label

    @property
    def operation(self) -> str:
        """The operation of most communication: a kernel that sends and receives may be several."""
        around = operation_of(self.around) if _TELLS_OPERATION.search(self.around) else ""
        alone = operation_of(self.most.name)
        return around or (alone if alone != "send_recv" else "")

    def reads(self, pattern: re.Pattern[str]) -> bool:
        """Whether most of it waits for such an operator."""
        return any(pattern.search(name) for name in (self.most.op, self.most.name))

    def calls(self, pattern: str | re.Pattern[str]) -> bool:
        """Whether the largest contributor has such a name."""
        return re.search(pattern, self.most.name) is not None


def _always(seen: Seen) -> bool:
    """Apply always."""
    del seen
    return True


class Advice(NamedTuple):
    """What to do about a cause.

    Parameters
    ----------
    do : str
        A sentence that begins with a verb, of at most `LENGTH` characters.
    why : str
        A sentence; empty if what to do says it all.
    change : Change, optional
        What it does to the run, to be replayed; None if no change is just that.
    """

    do: str
    why: str = ""
    change: Change | None = None


@dataclass(frozen=True)
class Rule:
    """Something to do, why, when that makes sense, and the change to the run that it is.

    Parameters
    ----------
    do : str
        A sentence that begins with a verb; ``{it.n_workers}`` is a fact of `Seen`.
    when : callable, optional
        By default always.
    change : callable, optional
        By default none.
    """

    do: str
    why: str = ""
    when: Callable[[Seen], bool] = _always
    change: Callable[[Seen], Change | None] | None = None

    def advice(self, seen: Seen) -> Advice:
        """What it says of a finding."""
        change = self.change(seen) if self.change is not None else None
        return Advice(self.do.format(it=seen), self.why, change)
