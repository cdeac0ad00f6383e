"""Device work and launches that the profiler lost: holes of a trace, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from htagraph.lookup.holes import Hole, without_launch, without_work
from htagraph.lookup.lost_nodes import lost_nodes
from htagraph.model.dag import Dag
from htagraph.model.damage import Damage, DamageKind
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window


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
    found = {
        DamageKind.LOST_LAUNCHES: launches,
        DamageKind.LOST_WORK: work,
        DamageKind.LOST_NODES: list(lost_nodes(dag)),
    }
    for kind, holes in found.items():
        said = holes_in_words(kind, holes, dag.span) if holes else ""
        yield from (Damage(kind, *hole, said) for hole in holes)


def holes_in_words(kind: DamageKind, holes: Sequence[Hole | Damage], span: Window) -> str:
    """What all holes of a kind are, and what that does to the answer."""
    if kind is DamageKind.LOST_LAUNCHES:
        return (
            f"{_how_many(holes, 'pieces of device work')} {_when(span, holes)} have no launch: "
            "calls, or what links work to them, are missing, and with that what the work waited "
            "for."
        )
    if kind is DamageKind.LOST_NODES:
        return (
            f"{_how_many(holes, 'replays of captured graphs')} {_when(span, holes)} lack kernels "
            "that other replays have: their records are missing, and the device only seems idle."
        )
    return (
        f"{_how_many(holes, 'kernel launches')} {_when(span, holes)} have no device work: its "
        "records are missing, and the device only seems idle."
    )


def _how_many(holes: Sequence[Hole | Damage], noun: str) -> str:
    n, n_all = sum(hole.n for hole in holes), sum(hole.n_all for hole in holes)
    return f"{n:,} of {n_all:,} {noun}"


def _when(span: Window, holes: Sequence[Hole | Damage]) -> str:
    """The time of the longest hole since the start of the trace, and how many others there are."""
    hole = max(holes, key=lambda one: one.end_ns - one.start_ns)
    if hole.start_ns <= span.start_ns and hole.end_ns >= span.end_ns:
        return "in the whole trace"
    start, end = (human_duration(ns - span.start_ns) for ns in (hole.start_ns, hole.end_ns))
    more = f" and in {human_count(len(holes) - 1, 'other place')}"
    return f"between {start} and {end}{more if len(holes) > 1 else ''}"
