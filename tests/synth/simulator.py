"""The discrete-event simulation of one rank or many: host threads and devices.

What a thread waits for may not be known yet; it is then parked until it is. A device that can be
full settles its work in the same order of time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count

from htagraph.errors import QueryError
from tests.synth.device import Engine
from tests.synth.program import Clock, JobProgram, Program
from tests.synth.simulated import SimulatedJob, SimulatedRank
from tests.synth.thread import Steps, Thread


def simulate(program: Program) -> SimulatedRank:
    """The simulation of one rank: its trace and its truth."""
    return _run([program], [Clock()], Engine(frozenset({program.rank})))[0]


def simulate_job(job: JobProgram) -> SimulatedJob:
    """The simulation of a job; a collective transfers once the ranks that it needs have come.

    The ranks may be some of a larger job; nobody waits for those that are not simulated.
    """
    engine = Engine(frozenset(program.rank for program in job.ranks))
    clocks = job.clocks or tuple(Clock() for _ in job.ranks)
    ranks = _run(job.ranks, clocks, engine)
    return SimulatedJob(ranks, clocks, job.culprit, engine.collectives, engine.n_ties)


def _run(
    programs: Sequence[Program], clocks: Sequence[Clock], engine: Engine
) -> tuple[SimulatedRank, ...]:
    """Run all main threads to their ends, in the order of true time."""
    threads = [Thread.of_program(program, engine) for program in programs]
    tickets = count()
    ready = [(thread.now, next(tickets), thread, thread.run_all()) for thread in threads]
    parked: dict[Thread, tuple[int, Steps]] = {}
    heapq.heapify(ready)
    while ready or engine.next_ns is not None:
        if engine.next_ns is not None and (not ready or engine.next_ns <= ready[0][0]):
            engine.settle_next()
        else:
            now, _, thread, steps = heapq.heappop(ready)
            request = next(steps, None)
            if isinstance(request, int):
                heapq.heappush(ready, (request, next(tickets), thread, steps))
            elif isinstance(request, Thread):
                heapq.heappush(ready, (request.next_ns, next(tickets), request, request.serve()))
                heapq.heappush(ready, (now, next(tickets), thread, steps))
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


def _check_ended(thread: Thread) -> None:
    """Raise if some work of a rank never ended."""
    stuck = next((item for item in thread.device.items if item.end is None), None)
    if stuck is not None:
        raise QueryError(
            f"rank {thread.device.rank}: {stuck.work.name!r} "
            f"(number {stuck.ordinal} of its group) never ends.",
            hint="let every rank of a group launch the same collectives in the same order.",
        )
