"""The class of device work: compute, communication or memory, and the rule that decided.

Rules are tried in order, on unique names, not on rows: metadata of the collective first, then what
the user adds, then names. Adding a communication library to `htagraph.model.collective_names`, a
rule here, or passing one to `Trace.compile`, changes every answer at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from htagraph.arrays.codes import distinct
from htagraph.compiler.structure import Structure
from htagraph.model.arrays import I8
from htagraph.model.collective_names import COMMUNICATION_KERNELS
from htagraph.model.dag import Classification
from htagraph.model.kinds import EventKind, KernelClass, among


@dataclass(frozen=True)
class ClassRule:
    """A rule on kernel names.

    Parameters
    ----------
    name : str
        What the rule is called in tables.
    kernel_class : KernelClass
    pattern : str
        Regular expression, searched in the kernel's name.

    Examples
    --------
    >>> rule = ClassRule("our ring", KernelClass.COMMUNICATION, r"^my_ring_")
    >>> rule.matches("my_ring_step(float*)")
    True
    """

    name: str
    kernel_class: KernelClass
    pattern: str

    def matches(self, kernel: str) -> bool:
        """Whether the rule applies to a kernel of this name."""
        return re.search(self.pattern, kernel) is not None


BUILT_IN_RULES = (
    *(
        ClassRule(name, KernelClass.COMMUNICATION, pattern)
        for name, pattern in COMMUNICATION_KERNELS.items()
    ),
    ClassRule(
        "copy or fill kernel",
        KernelClass.MEMORY,
        r"^(Memcpy|Memset|MEMCPY|MEMSET)|__amd_rocclr_(copy|fill)Buffer|^CopyBuffer|^FillBuffer",
    ),
    ClassRule("everything else computes", KernelClass.COMPUTE, ""),
)
"""Rules on names, in the order in which they are tried; the last one matches any."""

_METADATA, _DEVICE_KIND = "collective metadata", "copy or fill event"


@lru_cache(maxsize=8)
def _first_matching(rules: tuple[ClassRule, ...]) -> Callable[[str], int]:
    """Position of the first of some rules that a name matches; names come again."""

    @lru_cache(maxsize=1 << 16)
    def position(name: str) -> int:
        return next(i for i, rule in enumerate(rules) if rule.matches(name))

    return position


def classify(structure: Structure, user_rules: Sequence[ClassRule] = ()) -> Classification:
    """Class of each piece of device work and the rule that decided.

    `user_rules`: tried before `BUILT_IN_RULES`.
    """
    events = structure.events
    named_rules = (*user_rules, *BUILT_IN_RULES)
    rules = (
        _DEVICE_KIND,
        *(rule.name for rule in user_rules),
        _METADATA,
        *(r.name for r in BUILT_IN_RULES),
    )
    kernel_class = np.zeros(len(events), dtype=np.int8)
    rule_of = np.full(len(events), -1, dtype=np.int8)
    kernels = np.flatnonzero(events.kind == EventKind.KERNEL)
    class_by_name, rule_by_name = np.zeros((2, len(events.symbols)), dtype=np.int8)
    position_of = _first_matching(named_rules)
    for code in distinct(events.name[kernels]).tolist():
        position = position_of(events.symbols.texts[code])
        class_by_name[code] = named_rules[position].kernel_class
        # Metadata outranks the built-in rules, but not the user's.
        rule_by_name[code] = 1 + position + (position >= len(user_rules))
    kernel_class[kernels] = class_by_name[events.name[kernels]]
    rule_of[kernels] = rule_by_name[events.name[kernels]]
    _apply_metadata(structure, kernel_class, rule_of, position=1 + len(user_rules))
    copies = among(events.kind, (EventKind.MEMCPY, EventKind.MEMSET))
    kernel_class[copies], rule_of[copies] = KernelClass.MEMORY, 0
    return Classification(kernel_class, rule_of, rules)


def _apply_metadata(
    structure: Structure,
    kernel_class: I8,
    rule_of: I8,
    position: int,
) -> None:
    """Mark kernels with a collective's name as communication, unless the user's rules decided."""
    column = structure.events.columns.get("collective")
    if column is None:
        return
    rows = column.event[structure.events.kind[column.event] == EventKind.KERNEL]
    rows = rows[rule_of[rows] > position - 1]
    kernel_class[rows], rule_of[rows] = KernelClass.COMMUNICATION, position
