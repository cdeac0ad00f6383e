"""Simulated devices: streams in order, events between them, and collectives across ranks.

Work starts when its launch has arrived, the stream is free and what the stream waits for has ended,
whichever is last; on a device that a kernel of another stream fills, when that one drains. It ends
after its duration; a collective, after those it waits for have started. What is not known yet (a
rank is still to come) is left open, and settled when it is. A device that can be full settles work
in the order of time, for whatever starts first takes the room.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from htagraph.errors import QueryError
from htagraph.model.kinds import Bound, EventKind
from tests.synth.program import Machine
from tests.synth.truth import Mark, Release
from tests.synth.work import Collective, Work


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
    in_graph: bool = False
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
    filling: list[tuple[int, Item]] = field(default_factory=list)
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

    def enqueue(
        self,
        work: Work | Collective,
        stream: int,
        launch: Mark,
        event: int,
        after: tuple[Item, ...] = (),
    ) -> Item:
        """Put work at the end of a stream, and after some work of other streams."""
        held = self.holds.pop(stream, ())
        item = Item(
            work,
            self,
            stream,
            launch,
            event,
            previous=self.last.get(stream),
            waits=(*held, *(w for w in after if w.stream != stream and w not in held)),
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

    def fill(self, item: Item) -> None:
        """Note until when a kernel that has started leaves no room for those of other streams."""
        assert item.start is not None
        n_waves = self.machine.n_waves(item.work)
        if n_waves > 1:
            share = 1.0 - self.random.uniform(0.0, self.machine.drain_spread)
            drain_ns = int(item.work.dur_ns * share) // n_waves
            self.filling.append((item.start.ts_ns + item.work.dur_ns - drain_ns, item))

    def filled(self, item: Item, now_ns: int) -> tuple[int, Item] | None:
        """When there is room for a kernel that is ready, and what fills the device until then."""
        self.filling = [found for found in self.filling if found[0] > now_ns]
        others = [found for found in self.filling if found[1].stream != item.stream]
        if item.work.kind != EventKind.KERNEL or not others:
            return None
        return max(others, key=lambda found: found[0])

    def excess(self, now_ns: int) -> int:
        """How many items must start before one more launch fits into the queue; 0 if it fits."""
        while self.starts and self.starts[0][0] <= now_ns:
            heapq.heappop(self.starts)
        return max(0, len(self.starts) + self.n_unsettled - self.machine.queue_limit + 1)


@dataclass(eq=False, repr=False)
class Engine:
    """The solver of the times of device work on all ranks."""

    ranks: frozenset[int] = frozenset()
    n_ties: int = 0
    woken: list[tuple[Any, int]] = field(default_factory=list)
    collectives: dict[tuple[str, int], dict[int, Item]] = field(default_factory=dict)
    arrivals: dict[tuple[str, int], dict[int, Item]] = field(default_factory=dict)
    ready: list[tuple[int, int, Item, Mark]] = field(default_factory=list)
    tickets: Iterator[int] = field(default_factory=count)

    @property
    def next_ns(self) -> int | None:
        """When the next work is ready on a device that may be full, None if there is none."""
        return self.ready[0][0] if self.ready else None

    def admit(self, item: Item) -> None:
        """Settle new work, and whatever it settles in turn, as far as is known."""
        needed = [*item.waits, *([item.previous] if item.previous else [])]
        for other in needed:
            if other.end is None:
                other.followers.append(item)
                item.n_open += 1
        self._settle([item] if not item.n_open else [])

    def settle_next(self) -> None:
        """Start the work that is ready first, or put it off until the device has room for it."""
        now_ns, _, item, start = heapq.heappop(self.ready)
        full = item.device.filled(item, now_ns)
        if full is None:
            item.device.fill(self._begin(item, start))
            self._settle(self._followers(item))
            return
        room_ns, by = full
        assert by.start is not None
        waited_ns = start.late_ns if start.release is Release.DEVICE_FULL else 0
        late_ns = room_ns - start.ts_ns + waited_ns
        put_off = Mark(
            room_ns, by.start, Bound.WAITING_FOR_SMS, by.work.name,
            rank=item.device.rank, event=by.event, release=Release.DEVICE_FULL, late_ns=late_ns,
        )  # fmt: skip
        heapq.heappush(self.ready, (room_ns, next(self.tickets), item, put_off))

    def _settle(self, items: Iterable[Item]) -> None:
        """Start work for which nothing is open any more, and what waited for it."""
        queue = deque(items)
        while queue:
            item = queue.popleft()
            start = self._start(item)
            if item.device.machine.n_sms:
                heapq.heappush(self.ready, (start.ts_ns, next(self.tickets), item, start))
            else:
                queue.extend(self._followers(self._begin(item, start)))

    def _followers(self, item: Item) -> Iterator[Item]:
        """The work for which nothing is open any more, now that an item has started."""
        for ended in self._ending(item):
            for follower in ended.followers:
                follower.n_open -= 1
                if not follower.n_open:
                    yield follower
            ended.followers.clear()

    def _start(self, item: Item) -> Mark:
        """The latest of what an item waits for: when it starts if the device has room."""
        machine = item.device.machine
        jitter_ns = item.device.random.randint(0, machine.jitter_ns) if machine.jitter_ns else 0
        causes = [
            (
                item.launch.ts_ns + machine.launch_latency_ns + jitter_ns,
                0,
                item.launch,
                Bound.LAUNCH,
                Release.LAUNCH,
            )
        ]
        if item.previous is not None and item.previous.end is not None:
            causes.append(
                (
                    item.previous.end.ts_ns + machine.stream_gap_ns,
                    0,
                    item.previous.end,
                    Bound.KERNEL_GAP,
                    Release.STREAM,
                )
            )
        causes += [
            (
                w.end.ts_ns,
                machine.stream_wait_ns,
                w.end,
                Bound.SYNC,
                Release.GRAPH if w.in_graph and item.in_graph else Release.STREAM_WAIT,
            )
            for w in item.waits
            if w.end is not None
        ]
        latest = max(causes, key=lambda found: found[0])
        ready_ns, extra_ns, cause, bound, release = latest
        others_ns = [found[0] + found[1] for found in causes if found is not latest]
        self.n_ties += sum(found[0] == ready_ns for found in causes) - 1
        rank = item.device.rank
        start_ns = ready_ns + extra_ns
        return Mark(
            start_ns, cause, bound, item.work.name, rank=rank, event=item.event,
            release=release, late_ns=max(start_ns - max(others_ns, default=start_ns), 0),
        )  # fmt: skip

    def _begin(self, item: Item, start: Mark) -> Item:
        """Start work."""
        item.start = start
        item.device.started(item, start)
        self._wake(item, start.ts_ns)
        return item

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
