"""Simulated traces that are kept in the repository: those of the demo, and those of the notebooks.

`python -m tests.synth.shipped_traces` writes them. Run it after a change of the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.synth.program import (
    Action,
    Annotation,
    Graph,
    GraphNode,
    JobProgram,
    Launch,
    Op,
    Program,
    Replay,
    Spend,
    Synchronize,
    Work,
)
from tests.synth.simulated import SimulatedRank
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

ROOT = Path(__file__).parents[2]
DEMO = Path("htagraph/synth/demo_traces")
NOTEBOOKS = Path("notebooks/traces")
DEMO_FAULTS = (
    *("none", "dataloader", "sync_in_loop"),
    *("small_kernels", "exposed_allreduce", "synchronous_copy"),
)


def shipped_traces() -> dict[Path, SimulatedRank]:
    """The simulated ranks by the file they are kept in, relative to the repository."""
    ranks = {DEMO / fault: simulate(training_rank(fault=fault)) for fault in DEMO_FAULTS}
    ranks |= _of_job(
        DEMO / "job",
        training_job(ranks=4, straggler=2, delay_ns=10_000_000, max_offset_ns=5_000_000),
    )
    ranks |= {DEMO / "serving": simulate(_serving()), DEMO / "compiled": simulate(_compiled())}
    ranks |= _of_job(
        NOTEBOOKS / "job", training_job(ranks=2, steps=2, layers=3, straggler=1, seed=7)
    )
    programs = {
        "full_queue": training_rank(steps=2, layers=3, fault="full_queue"),
        "free_queue": training_rank(steps=2, layers=3),
        "reads": _reading(),
        "no_reads": _changed(_reading(), _without_reads),
        "slow_loader": _loading(6_000_000),
        "fast_loader": _loading(500_000),
    }
    ranks |= {NOTEBOOKS / name: simulate(program) for name, program in programs.items()}
    stragglers = {
        "two_stragglers": (2_500_000, 500_000),
        "loader_repaired": (0, 500_000),
        "device_repaired": (2_500_000, 0),
        "both_repaired": (0, 0),
    }
    for name, delays in stragglers.items():
        ranks |= _of_job(NOTEBOOKS / name, _with_stragglers(*delays))
    return {path.with_name(f"{path.name}.pt.trace.json.gz"): rank for path, rank in ranks.items()}


def _of_job(folder: Path, program: JobProgram) -> dict[Path, SimulatedRank]:
    """The ranks of a simulated job by file."""
    return {folder / f"rank{rank.rank}": rank for rank in simulate_job(program).ranks}


def _changed(program: Program, change: Callable[[Annotation], Annotation]) -> Program:
    """A program with a change of each step."""
    return replace(
        program,
        body=tuple(
            change(action) if isinstance(action, Annotation) else action for action in program.body
        ),
    )


def _serving() -> Program:
    """A prefill, then decode steps, each one replay of a CUDA graph."""
    layer = [
        ("rms_norm", 4_000),
        ("qkv_gemm", 21_000),
        ("paged_attention", 38_000),
        ("mlp_gemm", 47_000),
    ]
    graph = Graph(tuple(GraphNode(Work(name, ns)) for name, ns in layer * 4))
    prefill = Op("aten::scaled_dot_product_attention", (Launch(Work("flash_fwd_kernel", 600_000)),))
    sample = Op("aten::argmax", (Spend(60_000), Launch(Work("argmax", 9_000))))
    decode = (Spend(80_000), Replay(graph), sample, Synchronize())
    steps = [Annotation(f"step[DECODE bs=32] {number}", decode) for number in range(8)]
    return Program((Annotation("step[EXTEND bs=32]", (prefill, Synchronize())), *steps))


def _compiled() -> Program:
    """Steps of compiled code, of which one compiles again."""
    call = Op(
        "Torch-Compiled Region: 0/0", (Spend(40_000), Launch(Work("triton_fused_mm", 900_000)))
    )
    again = Op("_compile.compile_inner (dynamo_timed)", (Spend(180_000_000),))

    def step(number: int) -> Annotation:
        compiling = (again,) if number == 3 else ()
        return Annotation(
            f"ProfilerStep#{number}", (Spend(20_000), *compiling, call, Synchronize())
        )

    return Program(tuple(step(number) for number in range(6)))


def _reading() -> Program:
    """Steps that call ``loss.item()`` in every layer."""
    return training_rank(steps=3, layers=4, fault="sync_in_loop", seed=3)


def _without_reads(step: Annotation) -> Annotation:
    """A step without its calls of ``item()``."""

    def is_read(action: Action) -> bool:
        return getattr(action, "name", "") == "aten::item"

    return replace(step, body=tuple(action for action in step.body if not is_read(action)))


def _loading(loading_ns: int) -> Program:
    """Four steps whose loader takes so long; once its batch is there, each waits for the last."""
    job = training_job(
        ranks=1, steps=4, layers=6, straggler=0, delay="data_loading", delay_ns=loading_ns, seed=1
    )

    def with_loss(step: Annotation) -> Annotation:
        return replace(step, body=(*step.body[:2], Synchronize(), *step.body[2:]))

    return _changed(job.ranks[0], with_loss)


def _with_stragglers(slow_loader_ns: int, slow_kernels_ns: int) -> JobProgram:
    """A job whose rank 1 loads its data slowly, and whose rank 3 has slow kernels."""

    def job(straggler: int, delay: str, delay_ns: int) -> JobProgram:
        return training_job(
            ranks=4, tensor=4, steps=3, layers=4, straggler=straggler, delay=delay,
            delay_ns=delay_ns, max_offset_ns=5_000_000, seed=5,
        )  # fmt: skip

    def with_loss(step: Annotation) -> Annotation:
        return replace(step, body=(*step.body, Synchronize()))

    one, other = job(1, "data_loading", slow_loader_ns), job(3, "kernel", slow_kernels_ns)
    ranks = (*one.ranks[:3], other.ranks[3])
    return replace(one, ranks=tuple(_changed(rank, with_loss) for rank in ranks))


if __name__ == "__main__":
    for path, rank in shipped_traces().items():
        rank.write(ROOT / path)
