"""The facts that rules of advice read, and what a rule is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from htagraph.findings.context import Context
from htagraph.findings.verdict import Evidence
from htagraph.model.collective_names import operation_of
from htagraph.model.kinds import Bound, Cause

__all__ = ["Rule", "Seen"]

_TELLS_OPERATION = re.compile(r"^(nccl|gloo|mpi|ucc|c10d|_c10d_functional):|^record_param_comms")


@dataclass(frozen=True)
class Seen:
    """The facts that a rule reads: the context of the window, and the contents of one finding.

    Parameters
    ----------
    most : Evidence
        Its largest contributor.
    bound : str
        Bound of most of it.
    around : str
        Operator or annotation around most of it; empty if none.
    unread_stacks : bool
        The file has Python stacks that were not read.
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


@dataclass(frozen=True)
class Rule:
    """Something to try, and when that makes sense.

    Parameters
    ----------
    says : str
        A sentence, with ``{tips}`` where tips go, and ``{compute}`` for what the context says of
        compute; both are parts of a sentence.
    when : callable, optional
        By default always.
    """

    says: str
    when: Callable[[Seen], bool] = _always
