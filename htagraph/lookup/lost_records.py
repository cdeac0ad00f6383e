"""Device work and launches that the profiler lost: holes of a trace, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from htagraph.lookup.holes import Hole, without_launch, without_work
from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.units import human_count, human_duration

__all__ = ["lost_records"]


def lost_records(dag: Dag) -> Iterator[Damage]:
    """Yield one row per hole.

    Where both launches and work lack the other, it is what links them that was lost.
    """
    launches, work = without_launch(dag), without_work(dag)
    work = [
        hole
        for hole in work
        if not any(hole.start_ns < one.end_ns and one.start_ns < hole.end_ns for one in launches)
    ]
    if launches:
        said = (
            f"{_how_many(launches, 'pieces of device work')} {_when(dag, launches)} have no "
            "launch: calls, or what links work to them, are missing, and with that what the work "
            "waited for."
        )
        yield from (Damage(DamageKind.LOST_LAUNCHES, *hole, said) for hole in launches)
    if work:
        said = (
            f"{_how_many(work, 'kernel launches')} {_when(dag, work)} have no device work: its "
            "records are missing, and the device only seems idle."
        )
        yield from (Damage(DamageKind.LOST_WORK, *hole, said) for hole in work)


def _how_many(holes: Sequence[Hole], noun: str) -> str:
    n, n_all = sum(hole.n for hole in holes), sum(hole.n_all for hole in holes)
    return f"{n:,} of {n_all:,} {noun}"


def _when(dag: Dag, holes: Sequence[Hole]) -> str:
    """The time of the longest hole since the start of the trace, and how many others there are."""
    hole = max(holes, key=lambda one: one.end_ns - one.start_ns)
    if hole.start_ns <= dag.span.start_ns and hole.end_ns >= dag.span.end_ns:
        return "in the whole trace"
    start, end = (human_duration(ns - dag.span.start_ns) for ns in (hole.start_ns, hole.end_ns))
    more = f" and in {human_count(len(holes) - 1, 'other place')}"
    return f"between {start} and {end}{more if len(holes) > 1 else ''}"
