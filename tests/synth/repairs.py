"""Repaired programs: random runs, and the same runs with a change made for real.

A pair shares all random durations: they are drawn once, then the program is rewritten. Durations
are multiples of 20 ns, so that what is scaled by twentieths is exact.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from htagraph.job.loading import load_job
from htagraph.run.trace import Trace
from tests.synth import rewriting
from tests.synth.draw import Draw
from tests.synth.program import JobProgram, Program
from tests.synth.rewriting import rewritten
from tests.synth.shaped import GEMM, GRID_NS, NORM, SHAPES, Shaped
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job

_LOADERS = "enumerate(DataLoader)*"
_ASIDE = 31
"""A stream that nothing else runs on."""
_LAYER_NS = 850_000
"""A layer's part of a step of `training_job`, about."""


@dataclass(frozen=True)
class Change:
    """What to ask of a predictor: a function of ``htagraph``, and what it is called with."""

    verb: str
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, verb: str, *arguments: Any, **options: Any) -> Change:
        """The change as it would be called."""
        return cls(verb, arguments, tuple(options.items()))


def ask(change: Change) -> Any:
    """The change as ``htagraph`` has it, to be given to ``what_if``."""
    import htagraph

    return getattr(htagraph, change.verb)(*change.arguments, **dict(change.options))


@dataclass(frozen=True)
class Repair:
    """A program, the same with a change made for real, and the change."""

    kind: str
    shape: str
    before: Program | JobProgram
    after: Program | JobProgram
    change: Change

    @property
    def saving_ns(self) -> int:
        """What the change truly saves; negative where it costs."""
        return dur_ns(self.before) - dur_ns(self.after)


def dur_ns(program: Program | JobProgram) -> int:
    """Length of the whole window of a simulated program."""
    if isinstance(program, Program):
        return Trace.from_events(simulate(program).events).compile().window("trace").dur_ns
    with tempfile.TemporaryDirectory() as folder:
        simulate_job(program).write(folder)
        return load_job(folder).window("trace").critical_path().dur_ns


Made = tuple[Change, Program]


def _scaled_host(pattern: str, *factors: float) -> Callable[[Shaped, Program], Made]:
    """Host events that take some times as long."""

    def make(drawn: Shaped, program: Program) -> Made:
        by = drawn.draw.random.choice(factors)
        rewrite = rewriting.host_scaled(pattern, by)
        return Change.of("scale", pattern, by=by), _with(program, rewrite)

    return make


def _scaled_work(*factors: float) -> Callable[[Shaped, Program], Made]:
    """Kernels that take some times as long."""

    def make(drawn: Shaped, program: Program) -> Made:
        name, by = drawn.draw.random.choice((GEMM, NORM)), drawn.draw.random.choice(factors)
        return Change.of("scale", name, by=by), _with(program, rewriting.work_scaled(name, by))

    return make


def _removed(pattern: str) -> Callable[[Shaped, Program], Made]:
    """Host events that are not there."""
    return lambda _, program: (
        Change.of("remove", pattern),
        _with(program, rewriting.without(pattern)),
    )


def _fused(drawn: Shaped, program: Program) -> Made:
    """A run of elementwise kernels that is one."""
    keeps_ops = drawn.draw.chance(0.5)
    body = rewriting.fused(program.body, drawn.chain, keeps_ops=keeps_ops)
    return Change.of("fuse", *drawn.chain), replace(program, body=body)


def _asynchronous(_: Shaped, program: Program) -> Made:
    """A copy that the host does not wait for."""
    return Change.of("remove", "synchronous copy"), _with(program, rewriting.asynchronous())


def _bandwidth(drawn: Shaped, program: Program) -> Made:
    """Collectives that move their data faster."""
    rewrite = rewriting.transferred_faster(2.0, drawn.latency_ns)
    return Change.of("bandwidth", 2.0), _with(program, rewrite)


def _inserted(drawn: Shaped, program: Program) -> Made:
    """Operators that are followed by host time."""
    dur, name = drawn.draw.ns(2, 60), drawn.draw.random.choice(("aten::addmm", "aten::gelu"))
    rewrite = rewriting.followed(name, dur)
    return Change.of("insert", after=name, dur_ns=dur), _with(program, rewrite)


def _overlapped(_: Shaped, program: Program) -> Made:
    """Kernels that run on a stream of their own."""
    return Change.of("overlap", NORM), _with(program, rewriting.moved(NORM, _ASIDE))


def _graphed(drawn: Shaped, program: Program) -> Made:
    """Steps that replay a graph."""
    cost, keeps_gaps = drawn.draw.ns(6, 15), drawn.draw.chance(0.5)
    body = rewriting.graphed(program.body, cost, keeps_gaps=keeps_gaps)
    return Change.of("graphed"), replace(program, body=body)


def _with(program: Program, rewrite: rewriting.Rewrite) -> Program:
    """The program, rewritten throughout."""
    return replace(program, body=rewritten(program.body, rewrite))


_OF_ONE: dict[str, tuple[str, Sequence[str], Callable[[Shaped, Program], Made]]] = {
    "loader faster": ("loader", SHAPES, _scaled_host(_LOADERS, 0.1, 0.25, 0.5, 0.75)),
    "loader removed": ("loader", SHAPES, _removed(_LOADERS)),
    "prefetch": (
        "loader",
        SHAPES,
        lambda _, program: (Change.of("prefetch"), rewriting.prefetched(program)),
    ),
    "item removed": ("items", SHAPES, _removed("aten::item")),
    "sync removed": ("waits", SHAPES, _removed("cudaDeviceSynchronize")),
    "kernel faster": ("", SHAPES, _scaled_work(0.25, 0.5, 0.75, 0.9)),
    "kernel slower": ("", SHAPES, _scaled_work(1.5)),
    "operator removed": ("", SHAPES, _removed("aten::native_layer_norm")),
    "host faster": ("", SHAPES, _scaled_host("aten::*", 0.5)),
    "fused": ("chain", SHAPES, _fused),
    "copy asynchronous": ("synchronous copy", SHAPES, _asynchronous),
    "bandwidth": ("collectives", SHAPES, _bandwidth),
    "insert": ("", SHAPES, _inserted),
    "overlap": ("", ("host-bound", "device-bound", "balanced"), _overlapped),
    "graphed": ("graph", ("host-bound", "balanced", "device-bound"), _graphed),
}
"""What is planted, the shapes of programs that it is planted in, and the change."""

_OF_JOBS = ("straggler cured", "straggler's operator faster", "bandwidth of a job")

KINDS = (*_OF_ONE, *_OF_JOBS)
"""Kinds of change; the last ones are of jobs."""


def repair(kind: str, seed: int) -> Repair:
    """A random program and the same with a change, the same for the same seed."""
    draw = Draw.of(f"{kind} {seed}", grid_ns=GRID_NS)
    if kind in _OF_JOBS:
        return _of_job(kind, draw, seed)
    planted, shapes, make = _OF_ONE[kind]
    drawn = Shaped(draw, shapes[seed % len(shapes)], planted)
    before = drawn.program(seed)
    change, after = make(drawn, before)
    return Repair(kind, drawn.shape, before, after, change)


def _of_job(kind: str, draw: Draw, seed: int) -> Repair:
    """A random job, and its straggler cured or its collectives faster."""
    layers, ranks = draw.random.randint(2, 5), draw.random.choice((2, 4))
    options: dict[str, Any] = {
        "ranks": ranks, "layers": layers, "steps": draw.random.randint(2, 3), "seed": seed,
    }  # fmt: skip
    if kind == "bandwidth of a job":
        before = training_job(**options, fault=draw.random.choice(("none", "exposed_allreduce")))
        after = _each(before, rewriting.transferred_faster(2.0, draw.ns(5, 10)))
        return Repair(kind, "job", before, after, Change.of("bandwidth", 2.0))
    delay = draw.random.choice(("python", "op", "data_loading", "kernel"))
    late_ns = int(layers * _LAYER_NS * draw.random.uniform(0.2, 3))
    options |= {"straggler": draw.random.randrange(ranks)}
    if kind == "straggler cured":
        before, after = (
            training_job(**options, delay=delay, delay_ns=late) for late in (late_ns, 0)
        )
        return Repair(kind, "job", before, after, Change.of("equalise"))
    before = training_job(**options, delay="op", delay_ns=late_ns // GRID_NS * GRID_NS)
    name, by = "aten::unique_consecutive", draw.random.choice((0.1, 0.25, 0.5))
    after = _each(before, rewriting.host_scaled(name, by))
    return Repair(kind, "job", before, after, Change.of("scale", name, by=by))


def _each(job: JobProgram, rewrite: rewriting.Rewrite) -> JobProgram:
    """The job with the program of each rank rewritten."""
    return replace(job, ranks=tuple(_with(program, rewrite) for program in job.ranks))
