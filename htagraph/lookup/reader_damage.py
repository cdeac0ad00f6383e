"""What the reader of a file could not read, or had to set: the repairs that are not harmless."""

from __future__ import annotations

from collections.abc import Iterator

from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.recording import Repair
from htagraph.model.units import human_count

_SAID = {
    DamageKind.CUT_FILE: (
        "the file is cut off ({why}): events of any time, thread or device may be lost with its "
        "rest."
    ),
    DamageKind.DROPPED_EVENTS: (
        "the profiler dropped events ({why}): devices and threads look idle where it did."
    ),
    DamageKind.LOST_EVENTS: (
        "{n} of {of} could not be read ({why}): devices and threads look idle in their place."
    ),
    DamageKind.LOST_TIMES: (
        "{n} of {of} have no valid time or length ({why}): they count as if they took no time."
    ),
}
"""What is said of each kind that a reader finds."""


def reader_damage(dag: Dag) -> Iterator[Damage]:
    """Yield one row per kind; a file does not say when what it lost took place."""
    by_kind: dict[str, list[Repair]] = {}
    for repair in dag.repairs:
        by_kind.setdefault(repair.damage, []).append(repair)
    for kind in filter(by_kind.__contains__, _SAID):
        repairs = by_kind[kind]
        n = sum(repair.n for repair in repairs)
        n_all = len(dag.events) + (n if kind != DamageKind.LOST_TIMES else 0)
        if kind == DamageKind.CUT_FILE:  # one cut, which shows in several ways
            repairs, n, n_all = repairs[:1], 1, 1
        why = ", ".join(repair.kind for repair in repairs)
        said = _SAID[kind].format(n=f"{n:,}", of=human_count(n_all, "event"), why=why)
        yield Damage(kind, n, n_all, dag.span.start_ns, dag.span.end_ns, said)
