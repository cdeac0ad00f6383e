"""Rewritten programs: the same actions with a change made for real, and nothing drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from tests.synth.program import (
    Action,
    Annotation,
    Call,
    Collective,
    Delegate,
    Graph,
    GraphNode,
    HandOver,
    Launch,
    Op,
    Program,
    Record,
    Replay,
    Spend,
    StreamWait,
    Synchronize,
    Work,
)
from tests.synth.simulator import simulate

Actions = tuple[Action, ...]
Rewrite = Callable[[Action], "Actions | None"]
"""What stands in place of an action; None if it stays, rewritten within."""

_LOADER = "enumerate(DataLoader)*"


def rewritten(actions: Actions, rewrite: Rewrite) -> Actions:
    """Actions with a rewrite made throughout, from the outermost in."""
    made: list[Action] = []
    for action in actions:
        found = rewrite(action)
        if found is not None:
            made += found
        elif isinstance(action, Op | Annotation | HandOver | Delegate):
            made.append(replace(action, body=rewritten(action.body, rewrite)))
        else:
            made.append(action)
    return tuple(made)


def _is_named(action: Action, pattern: str) -> bool:
    """Whether an action makes a host event of that name."""
    if isinstance(action, Synchronize) and action.event is None:
        name = "cudaDeviceSynchronize" if action.stream is None else "cudaStreamSynchronize"
    elif isinstance(action, Op | Annotation | Call):
        name = action.name
    else:
        return False
    return fnmatchcase(name, pattern)


def _scaled(ns: int, by: float) -> int:
    """A time, some times as long."""
    return round(ns * by)


def without(pattern: str) -> Rewrite:
    """No host events of that name, nor what is in them."""
    return lambda action: () if _is_named(action, pattern) else None


def followed(pattern: str, dur_ns: int) -> Rewrite:
    """Host events of that name are followed by more time."""
    return lambda action: (action, Spend(dur_ns)) if _is_named(action, pattern) else None


def host_scaled(pattern: str, by: float) -> Rewrite:
    """Host events of that name, with all in them, take some times as long; device work does not."""

    def inside(action: Action) -> Actions | None:
        if isinstance(action, Spend):
            return (Spend(_scaled(action.dur_ns, by)),)
        if isinstance(action, Launch | Call | Record | StreamWait | Replay):
            return (replace(action, cost_ns=_scaled(action.cost_ns, by)),)
        return None

    def rewrite(action: Action) -> Actions | None:
        if not isinstance(action, Op | Annotation) or not _is_named(action, pattern):
            return None
        return (replace(action, body=rewritten(action.body, inside)),)

    return rewrite


def _works(edit: Callable[[Launch], Launch | None]) -> Rewrite:
    """Launches are edited; where there is nothing to edit, they stay."""

    def rewrite(action: Action) -> Actions | None:
        found = edit(action) if isinstance(action, Launch) else None
        return None if found is None else (found,)

    return rewrite


def work_scaled(name: str, by: float) -> Rewrite:
    """Device work of that name takes some times as long."""

    def edit(launch: Launch) -> Launch | None:
        if isinstance(launch.work, tuple) or launch.work.name != name:
            return None
        dur_ns = _scaled(launch.work.dur_ns, by)
        return replace(launch, work=replace(launch.work, dur_ns=dur_ns))

    return _works(edit)


def transferred_faster(by: float, latency_ns: int) -> Rewrite:
    """What collectives take beyond their latency goes some times as fast."""

    def edit(launch: Launch) -> Launch | None:
        if not isinstance(launch.work, Collective):
            return None
        transfer_ns = max(launch.work.dur_ns - latency_ns, 0)
        dur_ns = launch.work.dur_ns - transfer_ns + _scaled(transfer_ns, 1 / by)
        return replace(launch, work=replace(launch.work, dur_ns=dur_ns))

    return _works(edit)


def asynchronous() -> Rewrite:
    """No launch waits for what it launched."""
    return _works(lambda launch: replace(launch, is_blocking=False))


def moved(name: str, stream: int) -> Rewrite:
    """Device work of that name runs on another stream."""

    def edit(launch: Launch) -> Launch | None:
        if isinstance(launch.work, tuple) or launch.work.name != name:
            return None
        return replace(launch, stream=stream)

    return _works(edit)


def _launches(actions: Actions) -> Iterator[Launch]:
    """Yield all launches in the order of the program."""
    for action in actions:
        if isinstance(action, Launch):
            yield action
        elif isinstance(action, Op | Annotation | HandOver | Delegate):
            yield from _launches(action.body)


def fused(actions: Actions, names: tuple[str, ...], *, keeps_ops: bool) -> Actions:
    """Actions in which kernels that follow each other by these names are one kernel.

    Launches but the first go; operators that only launched another kernel may stay.
    """
    works = [one.work for one in _launches(actions) if not isinstance(one.work, tuple)]
    parts = [[work.dur_ns for work in works if work.name == name] for name in names]
    totals = iter([sum(run) for run in zip(*parts, strict=True)])

    def rewrite(action: Action) -> Actions | None:
        if isinstance(action, Op) and not keeps_ops:
            within = [one.work for one in _launches(action.body)]
            later = {work.name for work in within if not isinstance(work, tuple)}
            return () if later and later <= set(names[1:]) else None
        if not isinstance(action, Launch) or isinstance(action.work, tuple):
            return None
        if action.work.name == names[0]:
            return (replace(action, work=replace(action.work, dur_ns=next(totals))),)
        return () if action.work.name in names else None

    return rewritten(actions, rewrite)


def graphed(actions: Actions, cost_ns: int, *, keeps_gaps: bool) -> Actions:
    """Actions in which each step replays one graph of its work, where it launched the first of it.

    Loading and waits stay; time between operators may.
    """

    def rewrite(action: Action) -> Actions | None:
        if not isinstance(action, Annotation) or not action.name.startswith("ProfilerStep#"):
            return None
        launches = list(_launches(action.body))
        nodes = tuple(GraphNode(_single(launch), launch.stream) for launch in launches)
        body: list[Action] = []
        for one in action.body:
            is_gap = isinstance(one, Spend) and keeps_gaps
            if is_gap or _is_named(one, _LOADER) or isinstance(one, Synchronize):
                body.append(one)
            elif next(_launches((one,)), None) is launches[0]:
                body.append(Replay(Graph(nodes), cost_ns=cost_ns))
        return (replace(action, body=tuple(body)),)

    return rewritten(actions, rewrite)


def _single(launch: Launch) -> Work | Collective:
    """The one piece of work of a launch."""
    assert not isinstance(launch.work, tuple)
    return launch.work


def prefetched(program: Program, workers: int = 1) -> Program:
    """The program with batches loaded by workers while others are used.

    The workers begin with the first batch; then each begins one when its last was handed out. How
    long the thread then still waits for it is found step by step, for it depends on what came
    before only.
    """
    loads = [sum(one.dur_ns for one in batch.body if isinstance(one, Spend))
             for batch in _batches(program.body)]  # fmt: skip
    waits = loads[:1] + [0] * (len(loads) - 1)
    for number in range(1, len(loads)):
        rows = simulate(_waiting(program, waits)).rows
        batches = [row for row in rows if fnmatchcase(row.name, _LOADER) and row.device < 0]
        is_new = number < workers
        free_ns = batches[0].ts_ns if is_new else batches[number - workers].end_ns
        ready_ns = free_ns + loads[number]
        waits[number] = max(ready_ns - batches[number].ts_ns, 0)
    return _waiting(program, waits)


def _batches(actions: Actions) -> Iterator[Annotation]:
    """Yield the ranges that load a batch."""
    for action in actions:
        if isinstance(action, Annotation) and _is_named(action, _LOADER):
            yield action
        elif isinstance(action, Annotation):
            yield from _batches(action.body)


def _waiting(program: Program, waits: list[int]) -> Program:
    """The program in which its ranges that load take these times."""
    left = iter(waits)

    def rewrite(action: Action) -> Actions | None:
        if not isinstance(action, Annotation) or not _is_named(action, _LOADER):
            return None
        return (replace(action, body=(Spend(next(left)),)),)

    return replace(program, body=rewritten(program.body, rewrite))
