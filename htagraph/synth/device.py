"""Simulated devices: streams in order, events between them, and collectives across ranks.

Work starts when its launch has arrived, the stream is free and what the stream waits for has ended,
whichever is last. It ends after its duration; a collective, after those it waits for have started.
What is not known yet (a rank is still to come) is left open, and settled when it is.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from htagraph.errors import QueryError
from htagraph.model.kinds import Bound, EventKind
from htagraph.synth.program import Collective, Machine, Work
from htagraph.synth.truth import Mark

__all__ = ["Device", "Engine", "Item"]


@dataclass(eq=False, repr=False, slots=True)
class Item:
    """One piece of device work; `start` and `end` are None until they are known.

    With the start of its `arrival` the rank arrives at a collective: itself, or the half that
    sends.
    """

    work: Work | Collective
    device: Device
    stream: int
    launch: Mark
    event: int
    ordinal: int = -1
    arrival: Item | None = None
    previous: Item | None = None
    waits: tuple[Item, ...] = ()
    start: Mark | None = None
    end: Mark | None = None
    n_open: int = 0
    followers: list[Item] = field(default_factory=list)
    waiters: list[Any] = field(default_factory=list)

    @property
    def bound(self) -> Bound:
        """What the path is bound by while the work runs."""
        if isinstance(self.work, Collective):
            return Bound.COMMUNICATION
        return Bound.COMPUTE if self.work.kind == EventKind.KERNEL else Bound.MEMORY


@dataclass(eq=False, repr=False)
class Device:
    """The streams and events of one rank's device."""

    machine: Machine
    rank: int
    random: random.Random
    last: dict[int, Item] = field(default_factory=dict)
    holds: dict[int, tuple[Item, ...]] = field(default_factory=dict)
    recorded: dict[str, tuple[Item, ...]] = field(default_factory=dict)
    ordinals: dict[str, int] = field(default_factory=dict)
    sent: dict[tuple[str, str], deque[Item]] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    starts: list[tuple[int, int, Mark]] = field(default_factory=list)
    n_unsettled: int = 0

    def covered(self, stream: int | None = None) -> tuple[Item, ...]:
        """The last work of each stream, or of one: what a wait issued now waits for."""
        streams: Iterable[int] = (
            self.last.keys() | self.holds.keys() if stream is None else (stream,)
        )
        found = (
            item for s in sorted(streams) for item in (self.last.get(s), *self.holds.get(s, ()))
        )
        return tuple(dict.fromkeys(item for item in found if item is not None))

    def record(self, event: str, stream: int) -> None:
        """Make an event stand for all work of a stream so far."""
        self.recorded[event] = self.covered(stream)

    def hold(self, event: str, stream: int) -> None:
        """Let later work of a stream wait for an event."""
        self.holds[stream] = (*self.holds.get(stream, ()), *self.recorded.get(event, ()))

    def enqueue(self, work: Work | Collective, stream: int, launch: Mark, event: int) -> Item:
        """Put work at the end of a stream."""
        item = Item(
            work,
            self,
            stream,
            launch,
            event,
            previous=self.last.get(stream),
            waits=tuple(dict.fromkeys(self.holds.pop(stream, ()))),
        )
        if isinstance(work, Collective):
            self._number(item, work)
        self.last[stream] = item
        self.items.append(item)
        self.n_unsettled += 1
        return item

    def _number(self, item: Item, work: Collective) -> None:
        """Number a collective in its group; halves have one number."""
        sent = self.sent.setdefault((work.group.name, work.operation), deque())
        if work.half == "receive":
            if not sent:
                raise QueryError(
                    f"{work.name!r} receives before it sends.", hint="launch the other half first."
                )
            item.arrival = sent.popleft()
            item.ordinal = item.arrival.ordinal
            return
        item.ordinal, item.arrival = self.ordinals.get(work.group.name, 0), item
        self.ordinals[work.group.name] = item.ordinal + 1
        if work.half == "send":
            sent.append(item)

    def started(self, item: Item, mark: Mark) -> None:
        """Note when an item starts."""
        self.n_unsettled -= 1
        heapq.heappush(self.starts, (mark.ts_ns, item.event, mark))

    def excess(self, now_ns: int) -> int:
        """How many items must start before one more launch fits into the queue; 0 if it fits."""
        while self.starts and self.starts[0][0] <= now_ns:
            heapq.heappop(self.starts)
        return max(0, len(self.starts) + self.n_unsettled - self.machine.queue_limit + 1)


@dataclass(eq=False, repr=False)
class Engine:
    """The solver of the times of device work on all ranks.

    Parameters
    ----------
    ranks : frozenset of int
        The ranks that are simulated; nobody waits for others.
    n_ties : int
        How often two causes released work at one instant, so that the true path is not unique.
    woken : list
        Waiters whose item started or ended, with the time.
    collectives : dict
        Items of each collective by group and position, then by rank; of halves the one that
        receives.
    arrivals : dict
        The same, of halves the one that sends.
    """

    ranks: frozenset[int] = frozenset()
    n_ties: int = 0
    woken: list[tuple[Any, int]] = field(default_factory=list)
    collectives: dict[tuple[str, int], dict[int, Item]] = field(default_factory=dict)
    arrivals: dict[tuple[str, int], dict[int, Item]] = field(default_factory=dict)

    def admit(self, item: Item) -> None:
        """Settle new work, and whatever it settles in turn, as far as is known."""
        needed = [*item.waits, *([item.previous] if item.previous else [])]
        for other in needed:
            if other.end is None:
                other.followers.append(item)
                item.n_open += 1
        queue = deque([item] if not item.n_open else [])
        while queue:
            current = queue.popleft()
            self._begin(current)
            for ended in self._ending(current):
                for follower in ended.followers:
                    follower.n_open -= 1
                    if not follower.n_open:
                        queue.append(follower)
                ended.followers.clear()

    def _begin(self, item: Item) -> None:
        """Start work at the latest of what it waits for."""
        machine = item.device.machine
        jitter_ns = item.device.random.randint(0, machine.jitter_ns) if machine.jitter_ns else 0
        causes = [
            (
                item.launch.ts_ns + machine.launch_latency_ns + jitter_ns,
                0,
                item.launch,
                Bound.LAUNCH,
            )
        ]
        if item.previous is not None and item.previous.end is not None:
            causes.append(
                (
                    item.previous.end.ts_ns + machine.stream_gap_ns,
                    0,
                    item.previous.end,
                    Bound.KERNEL_GAP,
                )
            )
        causes += [
            (w.end.ts_ns, machine.stream_wait_ns, w.end, Bound.SYNC)
            for w in item.waits
            if w.end is not None
        ]
        ready_ns, extra_ns, cause, bound = max(causes, key=lambda found: found[0])
        self.n_ties += sum(found[0] == ready_ns for found in causes) - 1
        rank = item.device.rank
        item.start = Mark(
            ready_ns + extra_ns, cause, bound, item.work.name, rank=rank, event=item.event
        )
        item.device.started(item, item.start)
        self._wake(item, item.start.ts_ns)

    def _ending(self, item: Item) -> Iterator[Item]:
        """The work whose end is known now that this one has started."""
        needed = self._needed(item)
        if not isinstance(item.work, Collective) or not needed:
            alone_ns = item.work.alone_ns if isinstance(item.work, Collective) else 0
            self._end(item, item, alone_ns)
            yield item
        if not isinstance(item.work, Collective):
            return
        key = item.work.group.name, item.ordinal
        members, arrived = self.collectives.setdefault(key, {}), self.arrivals.setdefault(key, {})
        if item.work.half != "send":
            members[item.device.rank] = item
        if item.work.half != "receive":
            arrived[item.device.rank] = item
        for _, member in sorted(members.items()):
            needed = self._needed(member)
            if member.end is None and needed <= arrived.keys():
                awaited = [member, *(arrived[other] for other in sorted(needed))]
                late = max(awaited, key=_start_ns)
                self.n_ties += sum(_start_ns(one) == _start_ns(late) for one in awaited) - 1
                self._end(member, late, 0)
                yield member

    def _needed(self, item: Item) -> frozenset[int]:
        """The simulated ranks that an item waits for."""
        return (
            item.work.waits_for(item.device.rank) & self.ranks
            if isinstance(item.work, Collective)
            else frozenset()
        )

    def _end(self, item: Item, late: Item, wait_ns: int) -> None:
        """End work its duration after the latest start it waited for."""
        assert item.start is not None
        end_ns = _start_ns(late) + wait_ns + item.work.dur_ns
        if item.work.dur_ns < 0:
            raise QueryError(
                f"{item.work.name!r} takes {item.work.dur_ns} ns.",
                hint="durations are not negative.",
            )
        item.end = Mark(
            end_ns, late.start, item.bound, item.work.name,
            rank=item.device.rank, event=item.event, local_cause=item.start,
        )  # fmt: skip
        item.previous, item.waits = None, ()  # what is over is not kept alive by what came after
        self._wake(item, end_ns)

    def _wake(self, item: Item, ts_ns: int) -> None:
        """Let the threads that wait for an item go on."""
        self.woken += [(waiter, ts_ns) for waiter in item.waiters]
        item.waiters.clear()


def _start_ns(item: Item) -> int:
    """Start of an item that has started."""
    assert item.start is not None
    return item.start.ts_ns
