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

__all__ = ["simulate", "simulate_job"]


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
      waits for (if that is the latest, the stream wait is added). A node of a graph waits in the
      same way for the nodes before it.
    - On a device with so many multiprocessors, a kernel that is ready while one of another stream
      runs in several waves starts when the last of those begins to drain.
    - Device work ends after its duration.
    - A call that waits returns when the work it waits for has ended, plus the sync return; at once
      if nothing is left to wait for.
    - A launch returns after its cost; if the queue is full, when enough work has started.
    - A host thread goes on after its last action. A thread that was handed over to starts after the
      caller's last event, and the caller goes on after the other's last event. A thread that is
      given something to do begins after that, or when it is done with what it was given before.
    - A thread that polls goes on when the work has come to the point, plus the return.
    - An allocator that frees waits for the last work of some streams, and takes the return.

    Examples
    --------
    >>> from tests.synth.program import Launch, Machine, Op, Program, Synchronize, Work
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
