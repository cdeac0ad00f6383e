"""Each rule of advice applies where the trace shows what it is about, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.findings.context import LENGTH, Context, Light, Rule, Seen, find_context
from htagraph.findings.findings import TITLES
from htagraph.findings.rules import ADVICE, CHECK_HOST, RECORDING, advice_on, recording_advice
from htagraph.findings.verdict import Evidence
from htagraph.findings.window_bounds import find_bounds
from htagraph.lookup.memory_frees import FreesWithin
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.kinds import Bound, Cause, EventKind
from htagraph.replay.predictions import UNRANKED
from htagraph.synth import timeline
from tests.queries.gridded import FOUR_SMS


@dataclass(frozen=True)
class Drawn:
    """A drawing, full names of what is in it, the length of a column in ns, and a frame."""

    drawing: str
    names: tuple[tuple[str, str], ...] = ()
    column_ns: int = 1_000
    frame: str = ""
    blocks: int = 0

    def named(self, **names: str) -> Drawn:
        """The same with other names."""
        return replace(self, names=tuple((dict(self.names) | names).items()))

    @property
    def path(self) -> hg.CriticalPath:
        """The critical path of the trace."""
        names = {short: full for short, full in self.names if short in self.drawing}
        grid = {"grid_x": self.blocks, "block_x": 32} if self.blocks else {}
        columns = {name: {"kern": value} for name, value in grid.items()}
        events = timeline(self.drawing, names=names, columns=columns)
        events = replace(events, devices=(FOUR_SMS,))
        times = (column * self.column_ns // 1_000 for column in (events.ts_ns, events.dur_ns))
        kind = np.where(events.names() == self.frame, EventKind.PYTHON, events.kind)
        events = replace(
            events, **dict(zip(("ts_ns", "dur_ns"), times, strict=True)), kind=kind.astype(np.int8)
        )
        return hg.Trace.from_events(events).compile().critical_path()


@cache
def told(drawn: Drawn) -> dict[str, str]:
    """What to do about each cause, and why; nothing is replayed."""
    nothing: pd.DataFrame = OPPORTUNITIES.empty()
    found = find_bounds(drawn.path, costs=nothing).findings
    return {finding.cause: f"{finding.fix.do} {finding.fix.why}" for finding in found}


COMPILED = "Torch-Compiled Region: 0/0"
HOST = Drawn("""
    cpu 1    |[region  [launch >a]                                  ]
    stream 7 |                    [kern <a]
""").named(region="aten::mm")
CAPTURING = replace(HOST, drawing=HOST.drawing.replace("|[region", "|[begin_] [region")).named(
    begin_="cudaStreamBeginCapture"
)
CODE = Drawn("""
    cpu 1    |[aten::a]                                [launch >a]
    stream 7 |                                              [k <a]
""")
CODE_OR_WAIT = replace(
    CODE, drawing=CODE.drawing + "cpu 2 |            [aten::sort               ]"
)
PAUSE = Drawn("""
    cpu 1    |[aten::mm]                                             [aten::mm]
""")
WORKED_MEANWHILE = replace(
    PAUSE, drawing=PAUSE.drawing + "cpu 2 |            [aten::sort                          ]"
)
PARTLY = Drawn("""
    cpu 1    |[region [launch >a]][aten::mm [launch >b]                      ]
    stream 7 |                    [k1 <a]     [k2 <b                  ]
""").named(region=COMPILED)
DEVICE = Drawn("""
    cpu 1    |[region  [launch >a]]
    stream 7 |                  [kern <a                                           ]
""").named(region="aten::mm")
SMALL = replace(DEVICE, blocks=1)
PARTLY_DEVICE = Drawn("""
    cpu 1    |[region [launch >a]][aten::mm [launch >b]]
    stream 7 |               [kern <a][k2 <b                                         ]
""").named(region=COMPILED)
GAPS = Drawn("""
    cpu 1    |[launch >a]
    stream 7 |     [k <a]            [k <a]            [k <a]
""")
NETWORK = Drawn("""
    cpu 1    |[extra][other][around [launch >a]]
    stream 7 |                               [kern <a                                    ]
""").named(
    extra="aten::add", other="aten::sub", around="nccl:all_reduce", kern="ncclDevKernel_AllReduce"
)
HIDDEN = Drawn("""
    cpu 1    |[launch >b][around [launch >a]]
    stream 7 |      [gemm <b          ]
    stream 9 |                         [kern <a                                    ]
""").named(around="nccl:all_reduce", kern="ncclDevKernel_AllReduce")
COPY = Drawn("""
    cpu 1    |[aten::copy_ [launch >a]]
    stream 7 |                  [memory <a            ]
""")
BLOCKING = Drawn("""
    cpu 1    |[aten::copy_ [copy >c                 ]][aten::add            ][launch >k]
    stream 7 |                 [memory <c          ]                          [k <k   ]
""")
READ = Drawn("""
    cpu 1    |[launch >a][region [copy >c                 ]][aten::add       ][launch >b]
    stream 7 |     [kernel <a            ][memory <c]                           [k <b    ]
""").named(memory="Memcpy DtoH (Device -> Pageable)")
SYNC = Drawn("""
    cpu 1    |[launch >a][wait_               ]  [aten::add ][launch >b]
    stream 7 |     [kernel <a          ]                       [kernel <b      ]
""").named(wait_="cudaDeviceSynchronize")
UNKNOWN = Drawn("""
    cpu 1    |[launch >a][op      ][sync                                            ][end_ @7]
    stream 7 |     [k1 <a ]
""").named(end_="cudaStreamSynchronize")
UNRECORDED = replace(UNKNOWN, drawing=UNKNOWN.drawing.replace("[end_ @7]", "[aten::b]"))
ALLOCATES = Drawn("""
    cpu 1    |[aten::empty [allocate                                    ]][launch >a]
    stream 7 |                                                                  [k <a]
""")
FREES = Drawn("""
    cpu 1    |[free                                        ][aten::a][launch >a]
    stream 7 |                                                               [k <a]
""").named(free="cudaFree")
RETRIES = Drawn("""
    cpu 1    |[aten::cat [cudaMalloc][free                   ][free                ][cudaMalloc]]
    cpu 1    |                                                                      [launch >a]
    stream 7 |                                                                             [k <a]
""").named(free="cudaFree")
BEFORE = Drawn("""
    cpu 1    |[call_ >a]
    stream 7 |                              [old ][k <a                    ]
""")
LOADER = Drawn("""
    cpu 1    |{loader                                        }[aten::mm        ]
    cpu 1    |  [inner      ]
    cpu 2    |  [other                                     ]
""").named(inner="aten::stack", other="aten::sub")
WORKED = replace(
    LOADER, drawing=LOADER.drawing.replace("inner      ]", "inner                             ]")
)
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
CPU = Drawn("""
    cpu 1    |[region [inner                                                         ]]
""").named(inner="aten::mm", region="aten::matmul")
UPDATE = Drawn("""
    cpu 1    |[step [inner                                            ]]
""").named(step="Optimizer.step#Adam.step")
RANGE = Drawn("""
    cpu 1    |{range                                   }
    cpu 1    | [aten::mm  ]
""")

A2A = NETWORK.named(around="nccl:all_to_all", kern="ncclDevKernel_SendRecv")
GATHER = NETWORK.named(around="nccl:_all_gather_base", kern="ncclDevKernel_AllGather")
DDP = NETWORK.named(extra="DistributedDataParallel.forward", other="AddmmBackward0")
HTOD = "Memcpy HtoD ({} -> Device)"
SGEMM, BF16 = (
    "ampere_sgemm_128x64_nn",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
)

DTOD = "Memcpy DtoD (Device -> Device)"
DTOH = "Memcpy DtoH (Device -> {})"
CASES = {
    Cause.COMPUTE: (
        ("independent kernels", SMALL, replace(DEVICE, blocks=4)),
        ("bf16/fp16 (torch.autocast)", DEVICE.named(kern=SGEMM), DEVICE.named(kern=BF16)),
        ("bf16/fp16 (torch.autocast)", DEVICE.named(kern=SGEMM), DEVICE.named(kern="attn_fwd")),
        (
            "lower precision (bf16, fp16)",
            DEVICE.named(kern=SGEMM, region=COMPILED),
            DEVICE.named(kern=SGEMM),
        ),
        ("fuses the small ones", replace(DEVICE, blocks=4), SMALL),
        ("fuses the small ones", DEVICE, DEVICE.named(region=COMPILED)),
        ("fuses the small ones", DEVICE, DEVICE.named(launch="cudaGraphLaunch")),
        ("compile the rest", PARTLY_DEVICE, DEVICE),
        ("max-autotune", DEVICE.named(region=COMPILED), PARTLY_DEVICE),
    ),
    Cause.COMMUNICATION: (
        (
            "Compute overlaps most",
            replace(HIDDEN, drawing=HIDDEN.drawing.replace("<b    ", "<b" + " " * 45)),
            HIDDEN,
        ),
        (
            "Experts wait for their tokens",
            NETWORK.named(kern="void deep_ep::intranode::dispatch<8>(int)"),
            NETWORK,
        ),
        ("rows of embeddings", A2A.named(extra="split_embedding_lookup"), A2A),
        ("Start the all-to-all", A2A, NETWORK),
        ("Prefetch parameters", GATHER.named(extra="FSDP::pre_forward"), GATHER),
        ("bf16_compress_hook", DDP, DDP.named(other="aten::sub")),
        (
            "bf16_compress_hook",
            DDP,
            DDP.named(around="nccl:broadcast", kern="ncclDevKernel_Broadcast"),
        ),
        ("Pipeline stages", A2A.named(around="nccl:recv 0<-1"), A2A.named(around="aten::mm")),
    ),
    Cause.COPIES: (
        ("torch.empty", COPY.named(memory="Memset (Device)"), COPY.named(memory="Memcpy HtoD")),
        ("Make fewer copies", COPY.named(memory=DTOD), COPY.named(memory=HTOD.format("Pageable"))),
        (
            "Batch these copies",
            replace(COPY, column_ns=100).named(memory=HTOD.format("Pageable")),
            COPY.named(memory=HTOD.format("Pageable")),
        ),
        (
            "Copy between devices",
            COPY.named(memory="Memcpy PtoP (Device -> Device)"),
            COPY.named(memory="Memcpy HtoD"),
        ),
        (
            "Copy results to the host",
            COPY.named(memory=DTOH.format("Pinned")),
            COPY.named(memory=HTOD.format("Pinned")),
        ),
        (
            "Copy the next batch",
            COPY.named(memory=HTOD.format("Pinned")),
            COPY.named(memory=HTOD.format("Host")),
        ),
        (
            "Pin the host memory",
            COPY.named(memory=HTOD.format("Pageable")),
            COPY.named(memory=HTOD.format("Pinned")),
        ),
    ),
    Cause.SYNCHRONOUS_COPIES: (
        (
            "take microseconds",
            replace(BLOCKING, column_ns=100).named(memory=HTOD.format("Pageable")),
            BLOCKING.named(memory=HTOD.format("Pageable")),
        ),
        (
            "Copy results with",
            BLOCKING.named(memory=DTOH.format("Pageable")),
            BLOCKING.named(memory=HTOD.format("Pageable")),
        ),
        (
            "pinned already",
            BLOCKING.named(memory=HTOD.format("Pinned"), copy="cudaMemcpy"),
            BLOCKING.named(memory=HTOD.format("Pageable")),
        ),
        (
            "Pin the host memory",
            BLOCKING.named(memory=HTOD.format("Pageable")),
            BLOCKING.named(memory=HTOD.format("Host"), copy="hipMemcpyWithStream"),
        ),
    ),
    Cause.GPU_SYNCHRONIZATION: (
        (".item(), float()", READ.named(region="aten::item"), READ.named(region="aten::nonzero")),
        ("Use torch.where", READ.named(region="aten::nonzero"), SYNC),
        ("torch.cuda.synchronize()", SYNC, SYNC.named(wait_="cudaStreamSynchronize")),
    ),
    Cause.ALLOCATION: (
        (
            "pinned host memory",
            ALLOCATES.named(allocate="cudaHostAlloc"),
            ALLOCATES.named(allocate="cudaMalloc"),
        ),
        (
            "pinned host memory",
            ALLOCATES.named(allocate="cudaFreeHost"),
            ALLOCATES.named(allocate="cudaFree"),
        ),
        ("expandable_segments:True against fragmentation: the device ran out", RETRIES, FREES),
        (
            "or recompute activations: the device ran out",
            RETRIES.named(free="hipFree", launch="hipLaunchKernel"),
            RETRIES,
        ),
        ("Check whether aten::empty frees", ALLOCATES.named(allocate="cudaFree"), RETRIES),
        ("torch.cuda.empty_cache()", FREES, ALLOCATES.named(allocate="cudaFree")),
        ("torch.cuda.empty_cache()", FREES, RETRIES),
        ("Keep memory", FREES.named(free="hipFree", launch="hipLaunchKernel"), FREES),
        (
            "PYTORCH_CUDA_ALLOC_CONF",
            ALLOCATES.named(allocate="cudaMalloc"),
            ALLOCATES.named(allocate="hipMalloc", launch="hipLaunchKernel"),
        ),
    ),
    Cause.CPU_WORK: (
        ("if this waits for it", CODE_OR_WAIT, CODE),
        ("does more than call operators", replace(CODE, column_ns=100_000), CODE),
        ("Move it before the steps", replace(HOST, column_ns=1_000_000), HOST),
        ("Python between graphs", HOST.named(launch="hipGraphLaunch"), HOST),
        ("graph_breaks,recompiles", HOST.named(region="CompiledFunction"), PARTLY),
        (
            "Python between compiled regions",
            HOST.named(region="CompiledFunction", launch="musaLaunchKernel"),
            HOST.named(region="CompiledFunction"),
        ),
        ("Compile the rest", PARTLY, HOST),
        ("captures each step", HOST, HOST.named(region="## Call CompiledFxGraph f3a ##")),
        ("CUDA graph", HOST, HOST.named(launch="cudaGraphLaunch")),
        ("CUDA graph", HOST, HOST.named(launch="hipLaunchKernel")),
        ("HIP graph", HOST.named(launch="hipLaunchKernel"), HOST),
        ("CUDA graph", HOST, CAPTURING),
        ("(torch.compile, larger batches)", HOST.named(launch="musaLaunchKernel"), HOST),
    ),
    Cause.GAPS_BETWEEN_KERNELS: (
        ("inside captured graphs", GAPS.named(launch="cudaGraphLaunch"), GAPS),
        ("CUDA graph", GAPS, GAPS.named(launch="cudaGraphLaunch")),
    ),
    Cause.DATA_LOADING: (
        ("Load batches in workers", LOADER.named(loader=ALONE), LOADER.named(loader=WORKERS)),
        (
            "Load batches in workers",
            LOADER.named(loader="load_batch"),
            WORKED.named(loader=WORKERS),
        ),
        ("Move this work", WORKED.named(loader=WORKERS), LOADER.named(loader=WORKERS)),
        (
            "thread that pins memory",
            LOADER.named(loader=WORKERS, other="aten::pin_memory"),
            LOADER.named(loader=WORKERS),
        ),
        ("Add workers", LOADER.named(loader=WORKERS), LOADER.named(loader=ALONE)),
        ("Add workers", LOADER.named(loader=WORKERS), LOADER.named(loader="load_batch")),
    ),
    Cause.OPTIMIZER: (
        (
            "fused already",
            UPDATE.named(inner="aten::_fused_adam_"),
            UPDATE.named(inner="aten::_foreach_add_"),
        ),
    ),
    Cause.CHECKPOINTING: (
        ("mmap=True", RANGE.named(range="load_checkpoint"), RANGE.named(range="save_checkpoint")),
    ),
    Cause.CPU_OPERATORS: (("(torch.compile", CPU, CPU.named(region=COMPILED)),),
    Cause.HOST_CODE: (("if this waits for it", WORKED_MEANWHILE, PAUSE),),
}
"""Words of a rule, a trace where it applies, and one where it must not; by cause."""

EVERY = [(cause, *case) for cause, cases in CASES.items() for case in cases]


@pytest.mark.some(2)
@pytest.mark.parametrize("case", EVERY, ids=lambda case: f"{case[0]}: {case[1]}")
def test_a_rule_applies_where_the_trace_says_so(case: tuple[Cause, str, Drawn, Drawn]) -> None:
    """Both traces have the cause; the words stand in the advice on one of them only."""
    cause, words, applies, does_not = case

    assert words in told(applies)[cause]
    assert words not in told(does_not)[cause]


@pytest.mark.parametrize(
    ("cause", "words", "drawn", "below_ns", "above_ns"),
    [
        (
            Cause.COPIES,
            "Pin the host memory",
            COPY.named(memory=HTOD.format("Pageable")),
            120,
            140,
        ),
        (Cause.CPU_WORK, "run it less often, or move", CODE, 27_000, 33_000),
        (Cause.CPU_WORK, "A call that takes milliseconds", HOST, 200_000, 330_000),
    ],
)
def test_a_threshold_of_advice_is_where_it_is_stated(
    cause: Cause, words: str, drawn: Drawn, below_ns: int, above_ns: int
) -> None:
    """Copies of 3 us, code of 1 ms, calls of 5 ms: the same drawing, in shorter and longer."""
    below, above = (told(replace(drawn, column_ns=each))[cause] for each in (below_ns, above_ns))

    assert (words in below, words in above) == (False, True)


LATENESS = {
    Bound.UNTRACED_CODE: "its Python code",
    Bound.DATA_LOADING: "this rank's data",
    Bound.HOST: "process placement",
    Bound.COMPUTE: "a slower device",
    Bound.COMMUNICATION: "a rank without a trace",
    Bound.WAITING_FOR_SMS: "kernels that fill",
    Bound.SYNC: "waits for on its own device",
    Bound.LAUNCH: "Compare what this rank does there",
}


def context(drawn: Drawn = HOST) -> Context:
    """What kind of run a drawing shows."""
    path = drawn.path
    return find_context(path.dag, path.window)


def seen(cause: Cause, bound: Bound, name: str = "aten::mm", **facts: object) -> Seen:
    """What a rule reads: one contributor of a bound, in a run with some facts."""
    most = Evidence(name, "", "train.py:5", 0, name, 1_000, bound.label, 1)
    return Seen(cause, replace(context(), **facts), most, bound.label)


def untraced(cause: Cause = Cause.HOST_CODE, **facts: object) -> Seen:
    """The same of code that nothing names."""
    found = seen(cause, Bound.UNTRACED_CODE, **facts)
    return replace(found, most=replace(found.most, frame=""))


def do(found: Seen) -> str:
    """What is to be done about it."""
    return advice_on(found).do


def test_a_lack_of_memory_is_told_with_its_steps() -> None:
    """The first step, and how many others; a step without a number by its name."""

    def advice(*steps: str) -> str:
        frees = frozenset(FreesWithin("aten::cat", step, ran_out=True) for step in steps)
        found = seen(Cause.ALLOCATION, Bound.HOST, "cudaFree", frees=frees, api="cuda")
        return do(replace(found, most=replace(found.most, op="aten::cat"))).partition("memory")[2]

    ten, nine = "ProfilerStep#10", "ProfilerStep#9"
    assert advice("") == "."
    assert advice("", nine) == " in step 9."
    assert advice(ten, nine) == " in step 9 and 1 more."
    assert advice("step[DECODE bs=1]") == " in step[DECODE bs=1]."


@pytest.mark.slow
def test_a_late_rank_is_told_by_what_it_is_late() -> None:
    """Each bound has words of its own, which no other has."""
    for bound, words in LATENESS.items():
        said = {other: do(seen(Cause.LATE_RANK, other)) for other in LATENESS}
        assert [other for other, advice in said.items() if words in advice] == [bound]


def test_a_job_of_all_ranks_misses_no_rank() -> None:
    """What a rank waits for is in its traces."""
    alone, together = (
        do(seen(Cause.LATE_RANK, Bound.COMMUNICATION, has_others=whole)) for whole in (False, True)
    )
    assert ("without a trace" in alone, "without a trace" in together) == (True, False)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_ranks_that_share_cores_are_not_told_to_take_more(is_compiled: bool) -> None:
    """The threads of one are at the cost of another."""
    facts = {"compiled_share": float(is_compiled)}
    one, several = (
        do(seen(Cause.CPU_OPERATORS, Bound.HOST, shares_cores=shared, **facts))
        for shared in (False, True)
    )
    pins, takes = "pin each rank to its own cores", "set_num_threads"
    assert (takes in one, pins in one, takes in several, pins in several) == (
        True,
        False,
        False,
        True,
    )
    assert ("torch.compile" in several) is not is_compiled


def test_collectives_of_the_host_are_told_by_whether_there_is_a_device() -> None:
    """Without one, gloo is what there is to use."""
    with_device, without = (
        do(seen(Cause.COMMUNICATION, Bound.COMMUNICATION, "gloo:all_reduce", has_device=device))
        for device in (True, False)
    )
    assert ("nccl backend" in with_device, "nccl backend" in without) == (True, False)


RECORD = {
    "ProfilerActivity.CUDA": seen(Cause.CPU_WORK, Bound.HOST, has_device=False),
    "enable_cuda_sync_events=True": seen(Cause.UNRECORDED_WAIT, Bound.SYNC),
    "htagraph info": seen(Cause.LATE_RANK, Bound.UNKNOWN_WAITS),
    "htagraph report --stacks": replace(untraced(), unread_stacks=True),
    "Put torch.profiler.record_function": untraced(has_stacks=True),
    "Let the tracer": untraced(is_plain=True, is_pytorch=False),
    "NVTX ranges": untraced(is_pytorch=False),
    "htagraph.profile or htagraph.handler": untraced(),
}


@pytest.mark.parametrize("words", RECORD)
def test_what_the_recording_lacks_is_no_advice_on_a_cause(words: str) -> None:
    """It is said once in a report, with the setting to change."""
    assert [key for key, found in RECORD.items() if words in recording_advice(found)] == [words]
    assert words not in do(RECORD[words])


def test_nothing_is_to_be_recorded_if_all_is_named() -> None:
    """A line of Python code; an operator."""
    assert recording_advice(seen(Cause.HOST_CODE, Bound.UNTRACED_CODE)) == ""
    assert recording_advice(seen(Cause.CPU_WORK, Bound.HOST)) == ""
    assert recording_advice(untraced(Cause.DATA_LOADING)) == ""


def test_a_trace_of_functions_is_given_no_advice_about_pytorch() -> None:
    """Of a wait for something outside it, the trace does not say what it was."""
    functions = advice_on(seen(Cause.CPU_OPERATORS, Bound.HOST, is_plain=True))

    assert functions.do == "Make the largest function cheaper, or call it less often."
    assert "the trace does not say" in functions.why


def test_a_program_without_pytorch_is_given_no_advice_about_it() -> None:
    """An export of Nsight Systems may be of any program on a device."""
    facts = {"is_pytorch": False, "compiled_share": 0.0}
    said = [
        do(seen(cause, Bound.HOST, **facts))
        for cause in (Cause.CPU_WORK, Cause.ALLOCATION, Cause.GAPS_BETWEEN_KERNELS)
    ]
    no_graphs = do(seen(Cause.CPU_WORK, Bound.HOST, api="", **facts))
    loads = do(seen(Cause.DATA_LOADING, Bound.HOST, **facts))

    assert said == [
        "Launch less: capture each step as a CUDA graph.",
        "Allocate before the loop and reuse the memory, or let cudaMallocAsync pool it.",
        "Close the gaps: capture each step as a CUDA graph.",
    ]
    assert no_graphs == "Use fewer, larger kernels, and less code between them."
    assert loads == "Prepare the next batch during the step, in another thread or process."


@pytest.mark.parametrize("is_eager", [True, False])
def test_only_eager_code_is_told_to_compile(is_eager: bool) -> None:
    found = seen(Cause.SMALL_OPERATORS, Bound.HOST, compiled_share=float(not is_eager))

    assert ("torch.compile" in do(found)) is is_eager


def test_operators_at_their_roofs_are_to_be_fewer() -> None:
    """With one that is far from its roof, that one is to be faster."""
    far = Light("aten::_softmax bf16[16, 5185, 5185]", 0.25, "memory bandwidth")
    near = Light(roof_share=0.85)
    said = [do(seen(Cause.COMPUTE, Bound.COMPUTE, compute=light)) for light in (far, near)]

    assert said == [
        "Speed up aten::_softmax bf16[16, 5185, 5185]: it runs at 25% of memory bandwidth.",
        "Make operators fewer or smaller: they run at 85% of their roofs.",
    ]


def loading(path_ns: int, cost_ns: int, window_ns: int, **facts: object) -> Seen:
    """Data loading in the main process."""
    found = seen(Cause.DATA_LOADING, Bound.DATA_LOADING, **{"loading": "in process"} | facts)
    return replace(found, path_ns=path_ns, cost_ns=cost_ns, window_ns=window_ns)


@pytest.mark.parametrize(
    ("path_ns", "cost_ns", "workers"),
    [(82, 71, 3), (39, 33, 1), (80, 60, 2), (81, 60, 3), (0, 0, 1)],
)
def test_workers_load_in_the_time_that_the_rest_of_the_run_takes(
    path_ns: int, cost_ns: int, workers: int
) -> None:
    """Of a run of 100: 82 of loading in the 29 that are left without it."""
    found = advice_on(loading(path_ns, cost_ns, 100, n_batches=50))

    assert found.do == (
        f"Load batches in workers: DataLoader(num_workers={workers}, persistent_workers=True)."
    )
    assert found.change == hg.prefetch(workers)


def test_workers_for_all_batches_at_once_are_not_replayed() -> None:
    """Three of three batches would be loaded before the first step."""
    of_three, of_four = (
        advice_on(loading(82, 71, 100, n_batches=n_batches)) for n_batches in (3, 4)
    )

    assert of_three.do == of_four.do
    assert (of_three.change, of_four.change) == (None, hg.prefetch(3))


@pytest.mark.parametrize(("cost_ns", "begins"), [(90, "Load batches in"), (91, "Make loading")])
def test_data_that_needs_nine_workers_is_to_be_cheaper(cost_ns: int, begins: str) -> None:
    """80 of loading in the 10 that are left need 8 workers, in 9 they need 9."""
    found = advice_on(loading(80, cost_ns, 100, n_batches=50))

    assert found.do.startswith(begins)
    assert (found.change is None) is (begins == "Make loading")


def test_what_no_trace_shows_is_unknown() -> None:
    """A single operator says nothing of training, loaders, optimizers or precision."""
    found = context(Drawn("cpu 1 |[aten::mm      ]"))

    assert (found.trains, found.loading, found.optimizer, found.precision) == (False, "", "", "")
    assert (found.api, found.compiled_share, found.blocking_copy) == ("", 0.0, "")


@pytest.mark.parametrize(("share", "is_eager"), [(0.04, True), (0.06, False)])
def test_a_twentieth_of_compiled_work_counts_as_none(share: float, is_eager: bool) -> None:
    """Above, a part is compiled; above a half, most of it."""
    found = replace(context(), compiled_share=share)

    assert (found.is_eager, found.is_partly_compiled) == (is_eager, not is_eager)
    assert replace(found, compiled_share=0.6).is_compiled
    assert not replace(found, compiled_share=0.4).is_compiled


def test_a_job_runs_out_of_memory_where_a_rank_does() -> None:
    """Another rank may have memory left."""
    assert Context.of_job([context(RETRIES), context(FREES)]).frees == context(RETRIES).frees


def test_ranks_that_differ_leave_a_fact_unknown() -> None:
    """One is compiled and one is not; one has a device."""
    ranks = [context(HOST.named(region=COMPILED)), context(HOST)]
    job = Context.of_job(ranks)

    assert (job.is_compiled, job.api, job.has_others, job.shares_cores) == (
        False,
        "cuda",
        False,
        True,
    )
    assert Context.of_job([replace(ranks[1], api="hip"), ranks[1]]).api == ""


WAITS = {
    "waits for a pool, which runs extract (a.py:3)": "Make {it.awaited} cheaper",
    "sleeps": "Wait for what it is about",
    "waits for a server": "Send it from another thread",
    "waits for a socket or pipe": "Send it from another thread",
    "waits for another process": "Start the process before",
    "waits for the event loop": "Find what its coroutines await",
    "waits for a lock": "Make the code that holds the lock",
    "waits for a file": "Move it to another thread, or read",
    "waits for a queue": "Start what it waits for earlier",
}
"""What code waits for, and the advice."""


@pytest.mark.parametrize("does", WAITS)
def test_advice_on_a_wait_is_about_what_it_waits_for(does: str) -> None:
    found = seen(Cause.PYTHON_WAITS, Bound.UNTRACED_CODE)
    found = replace(found, most=replace(found.most, label=f"train.py:5 in f {does}"))

    said = advice_on(found).do

    assert said.startswith(WAITS[does].format(it=found))


ALWAYS = Rule("").when


def test_every_cause_has_a_last_resort_and_every_condition_is_tested() -> None:
    """The last rule of each has no condition; the words of all others stand in a test above."""
    assert set(ADVICE) == set(TITLES) - set(UNRANKED) == set(Cause) - set(UNRANKED)
    assert all(rules[-1].when is ALWAYS for rules in ADVICE.values())
    words = {text for _, text, _, _ in EVERY} | set(LATENESS.values()) | set(RECORD)
    words |= {"nccl backend", "pin each rank to its own cores", "(torch.compile, torch.set_num"}
    words |= {"the trace does not say", "cudaMallocAsync", "capture each step as a"}
    words |= {"Speed up {it.operator}", "Make operators fewer", "Make loading", "(torch.compile,"}
    words |= {"Allow TF32"} | set(WAITS.values())
    untested = [
        rule.do
        for rules in [*ADVICE.values(), RECORDING]
        for rule in rules
        if rule.when is not ALWAYS and not any(text in rule.do + rule.why for text in words)
    ]
    assert untested == []


RULES = {rule.do: rule for rules in [*ADVICE.values(), RECORDING] for rule in rules}
VERBS = """Add Allocate Allow Balance Batch Call Check Checkpoint Close Compare Compile Copy Create
Find Give Keep Launch Let Load Make Move Overlap Pin Prefetch Prepare Put Raise Read Record Remove
Save Send Skip Speed Start Turn Update Use Wait"""
LONGEST = replace(
    loading(8, 0, 1),
    run=replace(
        context(),
        compute=Light(
            f"aten::_scaled_dot_product_attention {'bf16[16, 5185] ' * 40}",
            1.0,
            "the bandwidth of the link to the host",
        ),
    ),
)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_advice_fits_into_two_lines(rule: Rule) -> None:
    """It is a sentence that begins with a verb, with the longest facts that it may name."""
    said = rule.advice(LONGEST).do

    assert len(said) <= LENGTH
    assert said.split()[0] in VERBS.split()
    assert said.endswith(".")
    assert rule.why == "" or (rule.why[-1] == "." and len(rule.why) <= LENGTH)
    assert "try" not in re.findall(r"\w+", said.lower())


def test_advice_on_a_host_fits_too() -> None:
    assert len(CHECK_HOST.do) <= LENGTH
    assert CHECK_HOST.do.split()[0] in VERBS.split()


SAYS = {
    "graphed()": r"\bgraphs?\b|mode=\"reduce-overhead\"",
    "prefetch": r"workers: DataLoader\(num_workers=|Prepare the next batch",
    "at_roof": r"^Speed up",
    "allow_tf32()": r"^Allow TF32",
    "bandwidth(2)": r"half the bytes",
    "overlap(communication)": r"Overlap|ahead|earlier|before work",
    "overlap(copies)": r"side stream",
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_change_is_what_the_text_says(rule: Rule) -> None:
    """What says one of these makes that change, and nothing else does."""
    facts = replace(LONGEST, run=replace(LONGEST.run, n_batches=50))
    change = str(rule.advice(facts).change or "")
    says = [begins for begins, words in SAYS.items() if change.startswith(begins)]

    assert bool(change) == bool(says)
    assert all(re.search(SAYS[begins], rule.advice(facts).do) for begins in says)


@pytest.mark.parametrize(("n_ranks", "change"), [(1, None), (2, hg.bandwidth(2))])
def test_bytes_on_the_host_are_known_where_ranks_meet(n_ranks: int, change: object) -> None:
    """One rank alone does not know how long it waited in a collective of gloo."""
    found = seen(
        Cause.COMMUNICATION,
        Bound.COMMUNICATION,
        "gloo:all_reduce",
        has_device=False,
        overlapped_share=0.6,
        shares_cores=n_ranks > 1,
    )

    assert advice_on(found).change == change
    assert advice_on(replace(found, run=replace(found.run, overlapped_share=0.0))).change is None
