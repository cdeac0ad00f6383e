"""The discrete-event simulation of one rank or many: host threads and devices.

Threads are generators, resumed in the order of true time whenever they touch a device, so that
everything is enqueued in the order in which it happens. What a thread waits for may not be known
yet; it is then parked until it is.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Generator, Iterable, Sequence
from itertools import count

from htagraph.errors import QueryError
from htagraph.model.kinds import Bound, EventKind
from htagraph.synth.device import Device, Engine, Item
from htagraph.synth.program import (
    Action,
    Annotation,
    Call,
    Clock,
    HandOver,
    JobProgram,
    Launch,
    Op,
    Program,
    Record,
    Spend,
    StreamWait,
    Synchronize,
)
from htagraph.synth.recorder import Recorder
from htagraph.synth.simulated import SimulatedJob, SimulatedRank
from htagraph.synth.truth import Mark

__all__ = ["simulate", "simulate_job"]

_DATA_LOADER = re.compile(r"DataLoader|dataloader")

Steps = Generator[int | Item, None, None]
"""What a thread yields: a time to resume at, or an item to wait for."""


def simulate(program: Program) -> SimulatedRank:
    """The simulation of one rank: its trace and its truth.

    Parameters
    ----------
    program : Program

    Returns
    -------
    SimulatedRank

    Raises
    ------
    QueryError
        If the program hands over inside an operator, or something takes negative time.

    Notes
    -----
    The rules of the machine, each of which is one cause in the true path:

    - Device work starts at the latest of: the start of its launch call plus the launch latency;
      the end of the work before it on its stream plus the stream gap; the ends of what its stream
      waits for (if that is the latest, the stream wait is added).
    - Device work ends after its duration.
    - A call that waits returns when the work it waits for has ended, plus the sync return; at once
      if nothing is left to wait for.
    - A launch returns after its cost; if the queue is full, when enough work has started.
    - A host thread goes on after its last action. A thread that was handed over to starts after the
      caller's last event, and the caller goes on after the other's last event.

    Examples
    --------
    >>> from htagraph.synth import Launch, Machine, Op, Program, Synchronize, Work
    >>> rank = simulate(Program(
    ...     body=(Op("aten::mm", (Launch(Work("gemm", 20_000), cost_ns=4_000),)), Synchronize()),
    ...     machine=Machine(launch_latency_ns=5_000, sync_return_ns=2_000),
    ... ))
    >>> rank.truth[["dur_ns", "bound", "name"]]
       dur_ns    bound                   name
    0    5000   launch                   gemm
    1   20000  compute                   gemm
    2    2000     sync  cudaDeviceSynchronize
    """
    return _run([program], [Clock()], Engine(frozenset({program.rank})))[0]


def simulate_job(job: JobProgram) -> SimulatedJob:
    """The simulation of a job; a collective transfers once the ranks that it needs have come.

    The ranks may be some of a larger job; nobody waits for those that are not simulated.

    Parameters
    ----------
    job : JobProgram

    Returns
    -------
    SimulatedJob

    Raises
    ------
    QueryError
        If a collective never finds its partners.
    """
    engine = Engine(frozenset(program.rank for program in job.ranks))
    clocks = job.clocks or tuple(Clock() for _ in job.ranks)
    ranks = _run(job.ranks, clocks, engine)
    return SimulatedJob(ranks, clocks, job.culprit, engine.collectives, engine.n_ties)


def _run(
    programs: Sequence[Program], clocks: Sequence[Clock], engine: Engine
) -> tuple[SimulatedRank, ...]:
    """Run all main threads to their ends, in the order of true time."""
    threads = [_Thread.of_program(program, engine) for program in programs]
    tickets = count()
    ready = [(thread.now, next(tickets), thread, thread.run_all()) for thread in threads]
    parked = {}
    heapq.heapify(ready)
    while ready:
        now, _, thread, steps = heapq.heappop(ready)
        request = next(steps, None)
        if isinstance(request, int):
            heapq.heappush(ready, (request, next(tickets), thread, steps))
        elif request is not None:
            request.waiters.append(thread)
            parked[thread] = (now, steps)
        for waiter, ts_ns in engine.woken:
            since, its_steps = parked.pop(waiter)
            heapq.heappush(ready, (max(ts_ns, since), next(tickets), waiter, its_steps))
        engine.woken.clear()
    for thread in threads:
        _check_ended(thread)
        thread.recorder.settle(thread.device.items)
    start_ns = programs[0].start_ns
    ends = [thread.marks() for thread in threads]
    return tuple(
        SimulatedRank(thread.recorder, clock, start_ns, thread.first, marks, engine.n_ties)
        for thread, clock, marks in zip(threads, clocks, ends, strict=True)
    )


def _check_ended(thread: _Thread) -> None:
    """Raise if some work of a rank never ended."""
    stuck = next((item for item in thread.device.items if item.end is None), None)
    if stuck is not None:
        raise QueryError(
            f"rank {thread.device.rank}: {stuck.work.name!r} "
            f"(number {stuck.ordinal} of its group) never ends.",
            hint="let every rank of a group launch the same collectives in the same order.",
        )


class _Thread:
    """One host thread while it runs."""

    def __init__(
        self, recorder: Recorder, device: Device, engine: Engine, tid: int, now_ns: int
    ) -> None:
        self.recorder = recorder
        self.device = device
        self.engine = engine
        self.tid = tid
        self.now = now_ns
        self.mark: Mark | None = None
        self.first: Mark | None = None
        self.open: list[int] = []
        self.range_ends: dict[int, Mark] = {}

    @classmethod
    def of_program(cls, program: Program, engine: Engine) -> _Thread:
        """The main thread of a program, on a device of its own."""
        jitter = random.Random(program.seed)  # noqa: S311 - no secret
        device = Device(program.machine, program.rank, jitter)
        return cls(Recorder(program), device, engine, tid=1, now_ns=program.start_ns)

    def run_all(self) -> Steps:
        """Run the program."""
        yield from self._run(self.recorder.program.body)

    def marks(self) -> dict[int, Mark]:
        """Last marks of paths: of each annotation by its row, and of the whole trace as -1."""
        ends = [item.end for item in self.device.items if item.end is not None]
        ends += [self.mark] if self.mark is not None and self.mark not in ends else []
        last = max(ends, key=lambda mark: mark.ts_ns, default=None)
        if last is None:
            return {}
        self.engine.n_ties += sum(mark.ts_ns == last.ts_ns for mark in ends) - 1
        return self.range_ends | {-1: last}

    def _run(self, actions: Iterable[Action]) -> Steps:
        """Do one action after another."""
        for action in actions:
            match action:
                case Spend():
                    self.now += action.dur_ns
                case Op() | Annotation():
                    yield from self._range(action)
                case Call():
                    call = self._enter_call(action.name)
                    self.now += action.cost_ns
                    self._leave(call)
                case HandOver():
                    yield from self._hand_over(action)
                case Launch():
                    yield from self._launch(action)
                case Record() | StreamWait():
                    yield from self._order(action)
                case Synchronize():
                    yield from self._synchronize(action)

    def _boundary(self) -> Mark:
        """Mark this instant; the time since the last mark belongs to the innermost event."""
        if self.mark is None:
            self.mark = self.first = Mark(self.now, None, Bound.HOST, rank=self.device.rank)
        elif self.now > self.mark.ts_ns:
            self._advance(self._innermost_bound(), self.open[-1] if self.open else -1)
        elif self.now < self.mark.ts_ns:
            raise QueryError(
                "the program goes back in time.", hint="durations and costs are not negative."
            )
        return self.mark

    def _advance(self, bound: Bound, event: int) -> None:
        """Mark this instant, and name what bound the time since the last mark."""
        name = self.recorder.rows[event].name if event >= 0 and bound != Bound.PYTHON_GAP else ""
        event = event if bound != Bound.PYTHON_GAP else -1
        self.mark = Mark(self.now, self.mark, bound, name, rank=self.device.rank, event=event)

    def _innermost_bound(self) -> Bound:
        """The bound of host time at this place."""
        if not self.open:
            return Bound.PYTHON_GAP
        rows = self.recorder.rows
        if any(_DATA_LOADER.search(rows[event].name) for event in self.open):
            return Bound.DATA_LOADING
        inner = rows[self.open[-1]]
        if inner.kind == EventKind.ANNOTATION:
            return Bound.PYTHON_GAP
        return Bound.SYNC if inner.name.endswith("Synchronize") else Bound.HOST

    def _range(self, action: Op | Annotation) -> Steps:
        """Run the actions inside an operator or annotation."""
        self._boundary()
        self.open.append(self.recorder.open_range(action, self.tid, self.now))
        yield from self._run(action.body)
        self._leave(self.open[-1])

    def _enter_call(self, name: str) -> int:
        """Begin an API call."""
        self._boundary()
        external_id = self.recorder.rows[self.open[-1]].external_id if self.open else -1
        self.open.append(self.recorder.open_call(name, self.tid, self.now, external_id))
        return self.open[-1]

    def _leave(self, event: int) -> None:
        """End the innermost event."""
        mark = self._boundary()
        if self.recorder.rows[event].kind == EventKind.ANNOTATION:
            self.range_ends[event] = mark
        self.recorder.close(event, self.now)
        self.open.pop()

    def _launch(self, action: Launch) -> Steps:
        """Enqueue work; wait for room in the queue, and for the work itself if the call blocks."""
        yield self.now
        call = self._enter_call(action.call_name)
        launch = self._boundary()
        yield from self._wait_for_room(self.now + action.cost_ns)
        items = self._enqueue(action, call, launch)
        if action.is_blocking:
            yield from self._wait_for(items[-1:])
            self.now += self.device.machine.sync_return_ns
            self._advance(Bound.SYNC, call)
        else:
            self.now = max(self.now, launch.ts_ns + action.cost_ns)
        self._leave(call)

    def _enqueue(self, action: Launch, call: int, launch: Mark) -> list[Item]:
        """Put the work of a call on its stream."""
        works = action.work if isinstance(action.work, tuple) else (action.work,)
        ops = [event for event in self.open if self.recorder.rows[event].kind == EventKind.OP]
        items = []
        for node, work in enumerate(works):
            event = self.recorder.add_device(work.name, work.kind, action.stream, call)
            item = self.device.enqueue(work, action.stream, launch, event)
            graph = (
                (self.recorder.rows[call].correlation, node)
                if isinstance(action.work, tuple)
                else None
            )
            self.recorder.describe(item, ops[-1] if ops else -1, graph)
            for outer in self.open:
                if self.recorder.rows[outer].kind == EventKind.ANNOTATION:
                    self.recorder.device_ranges.setdefault((outer, action.stream), []).append(item)
            self.engine.admit(item)
            items.append(item)
        return items

    def _wait_for_room(self, until_ns: int) -> Steps:
        """Wait until one more launch fits into the queue, if that is later than a time."""
        n_excess = self.device.excess(self.now)
        if not n_excess:
            return
        while len(self.device.starts) < n_excess:
            yield next(item for item in self.device.items if item.start is None)
        room = heapq.nsmallest(n_excess, self.device.starts)[-1][2]
        if room.ts_ns > until_ns:
            self.now, self.mark = room.ts_ns, room

    def _wait_for(self, items: Iterable[Item]) -> Steps:
        """Wait until all items have ended; the last one releases this thread if it is later."""
        ends: list[Mark] = []
        for item in items:
            while item.end is None:
                yield item
            ends.append(item.end)
        last = max(ends, key=lambda mark: mark.ts_ns, default=None)
        if last is not None and last.ts_ns >= self.now:
            self.engine.n_ties += (
                sum(mark.ts_ns == last.ts_ns for mark in ends) - 1 + (last.ts_ns == self.now)
            )
            self.now, self.mark = last.ts_ns, last

    def _order(self, action: Record | StreamWait) -> Steps:
        """Record an event, or let a stream wait for one."""
        yield self.now
        is_record = isinstance(action, Record)
        call = self._enter_call("cudaEventRecord" if is_record else "cudaStreamWaitEvent")
        if is_record:
            self.device.record(action.event, action.stream)
            self.recorder.records[action.event] = (call, action.stream)
        else:
            self.device.hold(action.event, action.stream)
        self.now += action.cost_ns
        self._leave(call)
        if not is_record:
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

    def _hand_over(self, action: HandOver) -> Steps:
        """Block while another thread runs; the gap on this thread ends when that one has."""
        if any(self.recorder.rows[event].kind != EventKind.ANNOTATION for event in self.open):
            name = self.recorder.rows[self.open[-1]].name
            raise QueryError(
                f"the program hands over inside {name!r}.", hint="hand over outside of operators."
            )
        worker = _Thread(
            self.recorder, self.device, self.engine, action.thread, self.now + action.wake_ns
        )
        worker.mark = self.mark
        yield from worker._run(action.body)
        self.now, self.mark = worker.now, worker.mark
        self.first = self.first or worker.first
        self.range_ends |= worker.range_ends
