"""The host threads of a simulated rank: generators, resumed in the order of true time.

A thread gives way whenever it touches a device, so that everything is enqueued in the order in
which it happens; when it must wait for what is not known yet; and when it starts another thread.
"""

from __future__ import annotations

import heapq
import random
import re
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from htagraph.errors import QueryError
from htagraph.model.kinds import Bound, EventKind
from tests.synth.actions import (
    Action,
    Annotation,
    Call,
    Delegate,
    Free,
    HandOver,
    Launch,
    Op,
    Poll,
    Receive,
    Reclaim,
    Record,
    Replay,
    Spend,
    StreamWait,
    Synchronize,
)
from tests.synth.device import Device, Engine, Item
from tests.synth.program import Program
from tests.synth.recorder import Recorder
from tests.synth.truth import Mark, Release
from tests.synth.work import GraphNode

_DATA_LOADER = re.compile(r"DataLoader|dataloader")

Steps = Generator["int | Item | Thread", None, None]
"""What a thread yields: a time to resume at, an item to wait for, or a thread to start."""


@dataclass(frozen=True)
class _Task:
    """What a thread was given to do, and since when it may."""

    body: tuple[Action, ...]
    since_ns: int
    given: Mark


@dataclass(eq=False, repr=False)
class Thread:
    """One host thread while it runs."""

    recorder: Recorder
    device: Device
    engine: Engine
    tid: int
    now: int
    mark: Mark | None = None
    first: Mark | None = None
    open: list[int] = field(default_factory=list)
    range_ends: dict[int, Mark] = field(default_factory=dict)
    tasks: deque[_Task] = field(default_factory=deque)
    workers: dict[int, Thread] = field(default_factory=dict)
    is_busy: bool = False

    @classmethod
    def of_program(cls, program: Program, engine: Engine) -> Thread:
        """The main thread of a program, on a device of its own."""
        jitter = random.Random(program.seed)  # noqa: S311 - no secret
        device = Device(program.machine, program.rank, jitter)
        return cls(Recorder(program), device, engine, tid=1, now=program.start_ns)

    def run_all(self) -> Steps:
        """Run the program; what comes before the capture is forgotten."""
        program = self.recorder.program
        if program.before:
            yield from self._run(program.before)
            yield self.now
            self.mark = self.first = None
            self.range_ends.clear()
            self.recorder.begin_capture()
        yield from self._run(program.body)

    def serve(self) -> Steps:
        """Do what the thread was given, until nothing is left."""
        self.is_busy = True
        while self.tasks:
            task = self.tasks.popleft()
            if self.mark is None or task.since_ns > self.now:
                self.now = task.since_ns
                self.mark = self._release(task.given, Bound.UNTRACED_CODE, Release.CALL)
            yield from self._run(task.body)
            yield self.now
        self.is_busy = False

    @property
    def next_ns(self) -> int:
        """When the thread may begin what it is to do next."""
        return max(self.now, self.tasks[0].since_ns)

    def marks(self) -> dict[int, Mark]:
        """Last marks of paths: of each annotation by its row, and of the whole trace as -1.

        No path ends with a thread that works for others.
        """
        recorder = self.recorder
        ends = [
            item.end
            for item in self.device.items
            if item.end is not None and item.event >= recorder.first_row
        ]
        ends += [self.mark] if self.mark is not None and self.mark not in ends else []
        last = max(ends, key=lambda mark: mark.seen_ns, default=None)
        if last is None:
            return {}
        self.engine.n_ties += sum(mark.seen_ns == last.seen_ns for mark in ends) - 1
        ranges = self.range_ends.items()
        return {row - recorder.first_row: mark for row, mark in ranges} | {-1: last}

    def _run(self, actions: Iterable[Action]) -> Steps:
        """Do one action after another."""
        for action in actions:
            match action:
                case Spend():
                    self.now += action.dur_ns
                case Receive():
                    self._receive(action)
                case Op() | Annotation():
                    yield from self._range(action)
                case Call():
                    call = self._enter_call(action.name)
                    self.now += action.cost_ns
                    self._leave(call)
                case HandOver() | Delegate():
                    yield from self._other_thread(action)
                case Launch() | Replay():
                    yield from self._launch(action)
                case Poll():
                    yield from self._poll(action)
                case Reclaim():
                    yield from self._reclaim(action)
                case Free():
                    yield from self._free(action)
                case Record() | StreamWait():
                    yield from self._order(action)
                case Synchronize():
                    yield from self._synchronize(action)

    def _receive(self, action: Receive) -> None:
        """Be idle until a request arrives."""
        since = self._boundary()
        self.now += action.after_ns
        self.mark = Mark(
            self.now, since, Bound.WAITING_FOR_WORK,
            rank=self.device.rank, release=Release.REQUEST, late_ns=action.after_ns,
        )  # fmt: skip

    def _boundary(self) -> Mark:
        """Mark this instant; the time since the last mark belongs to the innermost event."""
        if self.mark is None:
            self.mark = Mark(self.now, None, Bound.HOST, rank=self.device.rank)
        elif self.now > self.mark.ts_ns:
            self._advance(self._innermost_bound(), self.open[-1] if self.open else -1)
        elif self.now < self.mark.ts_ns:
            raise QueryError(
                "the program goes back in time.", hint="durations and costs are not negative."
            )
        return self.mark

    def _note(self, node: int) -> Mark:
        """Mark this instant as that of the start or end of a row."""
        mark = self.recorder.nodes[node] = self._boundary()
        self.first = self.first or mark
        return mark

    def _advance(self, bound: Bound, event: int, release: Release = Release.OWN) -> None:
        """Mark this instant, and name what bound the time since the last mark."""
        name = self.recorder.rows[event].name if event >= 0 and bound != Bound.UNTRACED_CODE else ""
        event = event if bound != Bound.UNTRACED_CODE else -1
        self.mark = Mark(
            self.now, self.mark, bound, name, rank=self.device.rank, event=event, release=release
        )

    def _release(self, cause: Mark, bound: Bound, release: Release) -> Mark:
        """The instant of a cause, as that from which this thread goes on."""
        since_ns = cause.ts_ns if self.mark is None else self.mark.ts_ns
        late_ns = max(cause.ts_ns - since_ns, 0)
        mark = Mark(
            cause.ts_ns, cause, bound, rank=self.device.rank, release=release, late_ns=late_ns
        )
        mark.seen_ns = cause.seen_ns
        return mark

    def _innermost_bound(self) -> Bound:
        """The bound of host time at this place."""
        if not self.open:
            return Bound.UNTRACED_CODE
        rows = self.recorder.rows
        if any(_DATA_LOADER.search(rows[event].name) for event in self.open):
            return Bound.DATA_LOADING
        inner = rows[self.open[-1]]
        if inner.kind == EventKind.ANNOTATION:
            return Bound.UNTRACED_CODE
        return Bound.SYNC if inner.name.endswith("Synchronize") else Bound.HOST

    def _range(self, action: Op | Annotation) -> Steps:
        """Run the actions inside an operator or annotation."""
        self._boundary()
        self.open.append(self.recorder.open_range(action, self.tid, self.now))
        self._note(2 * self.open[-1])
        yield from self._run(action.body)
        self._leave(self.open[-1])

    def _enter_call(self, name: str) -> int:
        """Begin an API call."""
        self._boundary()
        external_id = self.recorder.rows[self.open[-1]].external_id if self.open else -1
        self.open.append(self.recorder.open_call(name, self.tid, self.now, external_id))
        self._note(2 * self.open[-1])
        return self.open[-1]

    def _leave(self, event: int) -> None:
        """End the innermost event."""
        mark = self._note(2 * event + 1)
        if self.recorder.rows[event].kind == EventKind.ANNOTATION:
            self.range_ends[event] = mark
        self.recorder.close(event, self.now)
        self.open.pop()

    def _launch(self, action: Launch | Replay) -> Steps:
        """Enqueue work; wait for room in the queue, and for the work itself if the call blocks."""
        yield self.now
        call = self._enter_call(action.call if isinstance(action, Replay) else action.call_name)
        launch = self._boundary()
        yield from self._wait_for_room(self.now + action.cost_ns)
        if isinstance(action, Replay):
            items = self._replay(action, call, launch)
        else:
            items = self._enqueue(action, call, launch)
        if isinstance(action, Launch) and action.is_blocking:
            yield from self._wait_for(items[-1:], before_ns=action.staged_ns)
            self.now += self.device.machine.sync_return_ns
            self._advance(Bound.SYNC, call)
        else:
            self.now = max(self.now, launch.ts_ns + action.cost_ns)
        self._leave(call)

    def _enqueue(self, action: Launch, call: int, launch: Mark) -> list[Item]:
        """Put the work of a call on its stream."""
        if not isinstance(action.work, tuple):
            return [self._put(GraphNode(action.work, action.stream), call, launch)]
        graph = self.recorder.rows[call].correlation
        return [
            self._put(GraphNode(work, action.stream), call, launch, named=(graph, node))
            for node, work in enumerate(action.work)
        ]

    def _replay(self, action: Replay, call: int, launch: Mark) -> list[Item]:
        """Put the nodes of a graph on their streams, between what the stream of the call has."""
        entry = self.device.covered(action.stream)
        items: list[Item] = []
        for number, node in enumerate(action.graph.nodes):
            named = (action.graph.id, number) if action.graph.records_nodes else None
            is_first = all(item.stream != node.stream for item in items)
            after = tuple(items[other] for other in node.after)
            after += entry if is_first and not after else ()
            items.append(self._put(node, call, launch, named=named, after=after, in_graph=True))
        last = {item.stream: item for item in items}
        held = self.device.holds.get(action.stream, ())
        others = tuple(item for stream, item in last.items() if stream != action.stream)
        self.device.holds[action.stream] = (*held, *others)
        return items

    def _put(
        self,
        node: GraphNode,
        call: int,
        launch: Mark,
        *,
        named: tuple[int, int] | None = None,
        after: tuple[Item, ...] = (),
        in_graph: bool = False,
    ) -> Item:
        """Put one piece of work on its stream."""
        recorder, work, stream = self.recorder, node.work, node.stream
        ops = [event for event in self.open if recorder.rows[event].kind == EventKind.OP]
        event = recorder.add_device(work.name, work.kind, stream, call)
        item = self.device.enqueue(work, stream, launch, event, after)
        item.in_graph = in_graph
        recorder.describe(item, ops[-1] if ops else -1, named)
        for outer in self.open:
            if recorder.rows[outer].kind == EventKind.ANNOTATION:
                recorder.device_ranges.setdefault((outer, stream), []).append(item)
        self.engine.admit(item)
        return item

    def _wait_for_room(self, until_ns: int) -> Steps:
        """Wait until one more launch fits into the queue, if that is later than a time."""
        n_excess = self.device.excess(self.now)
        if not n_excess:
            return
        while len(self.device.starts) < n_excess:
            yield next(item for item in self.device.items if item.start is None)
        room = heapq.nsmallest(n_excess, self.device.starts)[-1][2]
        if room.ts_ns > until_ns:
            self.mark = self._release(room, Bound.LAUNCH, Release.QUEUE)
            self.now = room.ts_ns

    def _wait_for(
        self, items: Iterable[Item], *, before_ns: int = 0, release: Release = Release.SYNC
    ) -> Steps:
        """Wait until all items have ended, or so long before; the last one releases this thread."""
        ends: list[Mark] = []
        for item in items:
            while item.end is None:
                yield item
            ends.append(self._point(item, before_ns))
        last = max(ends, key=lambda mark: mark.ts_ns, default=None)
        if last is not None and last.ts_ns >= self.now:
            self.engine.n_ties += (
                sum(mark.ts_ns == last.ts_ns for mark in ends) - 1 + (last.ts_ns == self.now)
            )
            self.mark = self._release(last, Bound.SYNC, release)
            self.now = last.ts_ns

    def _order(self, action: Record | StreamWait) -> Steps:
        """Record an event, or let a stream wait for one."""
        yield self.now
        is_record = isinstance(action, Record)
        name = "cudaEventRecord" if is_record else "cudaStreamWaitEvent"
        call = self._enter_call(name) if self.recorder.program.sync_calls else -1
        if isinstance(action, StreamWait):
            self.device.hold(action.event, action.stream)
        else:
            self.device.record(action.event, action.stream)
        self.now += action.cost_ns
        if call < 0:
            return
        self._leave(call)
        if is_record:
            self.recorder.records[action.event] = (call, action.stream)
        else:
            self.recorder.add_sync("Stream Wait Event", call, action.stream, action.event)

    def _synchronize(self, action: Synchronize) -> Steps:
        """Wait for an event, a stream or the device; the return takes time of its own."""
        yield self.now
        if action.event is not None:
            api, record, items = (
                "cudaEventSynchronize",
                "Event Sync",
                self.device.recorded.get(action.event, ()),
            )
        elif action.stream is not None:
            api, record, items = (
                "cudaStreamSynchronize",
                "Stream Sync",
                self.device.covered(action.stream),
            )
        else:
            api, record, items = "cudaDeviceSynchronize", "Context Sync", self.device.covered()
        call = self._enter_call(api)
        entered = self.mark
        yield from self._wait_for(items)
        self.now += self.device.machine.sync_return_ns
        if self.mark is not entered:
            self._advance(Bound.SYNC, call)
        self._leave(call)
        stream = action.stream if action.event is None and action.stream is not None else -1
        self.recorder.add_sync(record, call, stream, action.event)

    def _other_thread(self, action: HandOver | Delegate) -> Steps:
        """Let another thread run, and wait for it or not."""
        if isinstance(action, Delegate):
            yield from self._delegate(action)
        else:
            yield from self._hand_over(action)

    def _hand_over(self, action: HandOver) -> Steps:
        """Block while another thread runs; the gap on this thread ends when that one has."""
        if any(self.recorder.rows[event].kind != EventKind.ANNOTATION for event in self.open):
            name = self.recorder.rows[self.open[-1]].name
            raise QueryError(
                f"the program hands over inside {name!r}.", hint="hand over outside of operators."
            )
        worker = Thread(
            self.recorder, self.device, self.engine, action.thread, self.now + action.wake_ns,
            workers=self.workers,
        )  # fmt: skip
        self.recorder.name_thread(action.thread, action.thread_name)
        if self.mark is not None:
            worker.mark = worker._release(self.mark, Bound.UNTRACED_CODE, Release.HANDOFF)
        yield from worker._run(action.body)
        if worker.mark is not None:
            self.mark = self._release(worker.mark, Bound.UNTRACED_CODE, Release.HANDOFF)
        self.now = worker.now
        self.first = self.first or worker.first
        self.range_ends |= worker.range_ends

    def _delegate(self, action: Delegate) -> Steps:
        """Give another thread something to do; start it if it is idle."""
        yield self.now
        worker = self.workers.get(action.thread)
        if worker is None:
            worker = Thread(
                self.recorder, self.device, self.engine, action.thread, self.now,
                workers=self.workers,
            )  # fmt: skip
            self.workers[action.thread] = worker
            self.recorder.name_thread(action.thread, action.thread_name)
        worker.tasks.append(_Task(action.body, self.now + action.wake_ns, self._boundary()))
        if not worker.is_busy:
            worker.is_busy = True
            yield worker

    def _poll(self, action: Poll) -> Steps:
        """Spin until work has come to a point, if it has not."""
        yield self.now
        self._boundary()
        item = self.device.last.get(action.stream)
        while item is not None and item.end is None:
            yield item
        if item is None or item.start is None or item.end is None:
            return
        seen = self._point(item, action.before_ns)
        if seen.ts_ns < self.now:
            return
        self.mark = self._release(seen, Bound.SYNC, Release.POLL)
        self.now = seen.ts_ns + action.return_ns
        self._advance(Bound.SYNC, -1)

    def _point(self, item: Item, before_ns: int) -> Mark:
        """The end of work, or a point in it so long before."""
        assert item.start is not None
        assert item.end is not None
        at_ns = max(item.end.ts_ns - before_ns, item.start.ts_ns)
        if at_ns == item.end.ts_ns:
            return item.end
        return Mark(
            at_ns, item.start, item.bound, item.work.name, rank=self.device.rank, event=item.event
        )

    def _reclaim(self, action: Reclaim) -> Steps:
        """Wait for the last work of some streams, and make ready to free."""
        yield self.now
        before = self._boundary()
        items = [self.device.last[each] for each in action.streams if each in self.device.last]
        yield from self._wait_for(items, release=Release.ALLOCATOR)
        self.now += action.return_ns
        if self.mark is not before:
            self._advance(Bound.SYNC, -1)

    def _free(self, action: Free) -> Steps:
        """Wait for all work of the device, and give memory back."""
        yield self.now
        call = self._enter_call("cudaFree")
        before = self.mark
        yield from self._wait_for(self.device.covered())
        self.now += action.cost_ns
        if self.mark is not before:
            self._advance(Bound.SYNC, call)
        self._leave(call)
