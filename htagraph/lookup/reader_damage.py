"""What the reader of a file could not read, or had to set: the repairs that are not harmless."""

from __future__ import annotations

from collections.abc import Iterator

from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.recording import Repair
from htagraph.model.units import human_count

__all__ = ["reader_damage"]


def reader_damage(dag: Dag) -> Iterator[Damage]:
    """Yield one row per kind; a file does not say when what it lost took place."""
    by_kind: dict[str, list[Repair]] = {}
    for repair in dag.repairs:
        by_kind.setdefault(repair.damage, []).append(repair)
    for kind in DamageKind:
        if kind not in by_kind:
            continue
        repairs = by_kind[kind]
        n, n_all = 1, 1
        if kind != DamageKind.CUT_FILE:
            n = sum(repair.n for repair in repairs)
            n_all = len(dag.events) + (n if kind == DamageKind.LOST_EVENTS else 0)
        said = _said(kind, n, n_all, ", ".join(repair.kind for repair in repairs))
        yield Damage(kind, n, n_all, dag.span.start_ns, dag.span.end_ns, said)


def _said(kind: DamageKind, n: int, n_all: int, why: str) -> str:
    if kind == DamageKind.CUT_FILE:
        return (
            f"the file is cut off ({why}): the rest of its events is lost, which may be of any "
            "time, and of threads or devices that are missing here."
        )
    of = f"{n:,} of {human_count(n_all, 'event')}"
    if kind == DamageKind.LOST_EVENTS:
        return f"{of} could not be read ({why}): their time counts as idle or as a gap."
    return f"{of} have no valid time or length ({why}): they count as if they took no time."
