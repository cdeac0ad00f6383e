"""Each rule of advice applies where the trace shows what it is about, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.findings.advice import TITLES
from htagraph.findings.context import Context, find_context
from htagraph.findings.rules import ADVICE, FIRST, REMARKS, TIPS, advice_on
from htagraph.findings.seen import Rule, Seen
from htagraph.findings.verdict import Evidence
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.kinds import Bound, Cause, EventKind
from htagraph.replay.candidates import UNRANKED
from htagraph.synth import timeline
from tests.queries.gridded import FOUR_SMS


@dataclass(frozen=True)
class Drawn:
    """A drawing, full names of what is in it, the length of a column in ns, and a frame.

    Its kernel ``kern`` may have blocks, on a device of four multiprocessors.
    """

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
    """What is to be tried about each cause."""
    nothing: pd.DataFrame = OPPORTUNITIES.empty()
    found = find_bounds(drawn.path, costs=nothing).findings
    return {finding.cause: finding.to_try for finding in found}


COMPILED = "Torch-Compiled Region: 0/0"
HOST = Drawn("""
    cpu 1    |[region  [launch >a]                                  ]
    stream 7 |                    [kern <a]
""").named(region="aten::mm")
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

CASES = {
    Cause.COMPUTE: (
        ("fewer blocks than", SMALL, replace(DEVICE, blocks=4)),
        ("speed up its largest", replace(DEVICE, blocks=4), SMALL),
        ("lower precision", DEVICE.named(kern=SGEMM), DEVICE.named(kern=BF16)),
        ("lower precision", DEVICE.named(kern=SGEMM), DEVICE.named(kern="attn_fwd")),
        ("operators by torch.compile", DEVICE, DEVICE.named(region=COMPILED)),
        ("operators by torch.compile", DEVICE, DEVICE.named(launch="cudaGraphLaunch")),
        ("compile the rest", PARTLY_DEVICE, DEVICE),
        ("max-autotune", DEVICE.named(region=COMPILED), PARTLY_DEVICE),
    ),
    Cause.COMMUNICATION: (
        (
            "compute overlaps most of it already",
            replace(HIDDEN, drawing=HIDDEN.drawing.replace("<b    ", "<b" + " " * 45)),
            HIDDEN,
        ),
        (
            "experts wait for their tokens",
            NETWORK.named(kern="void deep_ep::intranode::dispatch<8>(int)"),
            NETWORK,
        ),
        ("rows of embeddings", A2A.named(extra="split_embedding_lookup"), A2A),
        ("each rank waits for data from all others", A2A, NETWORK),
        (
            "parameters are gathered",
            GATHER.named(extra="FSDP::pre_forward"),
            GATHER,
        ),
        ("bucket_cap_mb", DDP, DDP.named(other="aten::sub")),
        ("bucket_cap_mb", DDP, DDP.named(around="nccl:broadcast", kern="ncclDevKernel_Broadcast")),
        (
            "pipeline stages",
            A2A.named(around="nccl:recv 0<-1"),
            A2A.named(around="aten::mm"),
        ),
    ),
    Cause.COPIES: (
        (
            "these are memsets",
            COPY.named(memory="Memset (Device)"),
            COPY.named(memory="Memcpy HtoD"),
        ),
        (
            "let torch.compile fuse them",
            COPY.named(memory="Memcpy DtoD (Device -> Device)"),
            COPY.named(memory="Memcpy DtoD (Device -> Device)", **{"aten::copy_": COMPILED}),
        ),
        (
            "stay on the device",
            COPY.named(memory="Memcpy DtoD (Device -> Device)"),
            COPY.named(memory=HTOD.format("Pageable")),
        ),
        (
            "their number is the cost",
            replace(COPY, column_ns=100).named(memory=HTOD.format("Pageable")),
            COPY.named(memory=HTOD.format("Pageable")),
        ),
        (
            "from device to device",
            COPY.named(memory="Memcpy PtoP (Device -> Device)"),
            COPY.named(memory="Memcpy HtoD"),
        ),
        (
            "already pinned",
            COPY.named(memory=HTOD.format("Pinned")),
            COPY.named(memory=HTOD.format("Host")),
        ),
        (
            "copy from pinned memory",
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
            "results are copied",
            BLOCKING.named(memory="Memcpy DtoH (Device -> Pageable)"),
            BLOCKING.named(memory=HTOD.format("Pageable")),
        ),
        (
            "already pinned",
            BLOCKING.named(memory=HTOD.format("Pinned"), copy="cudaMemcpy"),
            BLOCKING.named(memory=HTOD.format("Pageable")),
        ),
        (
            "pin the host memory",
            BLOCKING.named(memory=HTOD.format("Pageable")),
            BLOCKING.named(memory=HTOD.format("Host"), copy="hipMemcpyWithStream"),
        ),
    ),
    Cause.GPU_SYNCHRONIZATION: (
        ("numbers are read", READ.named(region="aten::item"), READ.named(region="aten::nonzero")),
        ("shapes depend on values", READ.named(region="aten::nonzero"), SYNC),
        ("of the whole device", SYNC, SYNC.named(wait_="cudaStreamSynchronize")),
    ),
    Cause.UNRECORDED_WAIT: (
        ("start the capture before the work that", UNKNOWN, UNRECORDED),
        ("waits for: set enable_cuda_sync_events", UNRECORDED, UNKNOWN),
    ),
    Cause.ALLOCATION: (
        (
            "pinned host memory",
            ALLOCATES.named(allocate="cudaHostAlloc"),
            ALLOCATES.named(allocate="cudaMalloc"),
        ),
        (
            "memory is freed",
            ALLOCATES.named(allocate="cudaFree"),
            ALLOCATES.named(allocate="cudaMalloc"),
        ),
        (
            "PYTORCH_CUDA_ALLOC_CONF",
            ALLOCATES.named(allocate="cudaMalloc"),
            ALLOCATES.named(allocate="hipMalloc", launch="hipLaunchKernel"),
        ),
    ),
    Cause.CPU_WORK: (
        ("ProfilerActivity.CUDA", Drawn("cpu 1 |[aten::mm   ][nccl:all_reduce      ]"), HOST),
        ("waits for the other thread", CODE_OR_WAIT, CODE),
        ("run it less often, or move", replace(CODE, column_ns=100_000), CODE),
        ("a call that takes milliseconds", replace(HOST, column_ns=1_000_000), HOST),
        ("what is left is between them", HOST.named(launch="hipGraphLaunch"), HOST),
        ("most of the work is compiled", HOST.named(region="CompiledFunction"), PARTLY),
        ("covers only a part", PARTLY, HOST),
        ("torch.compile", HOST, HOST.named(region="## Call CompiledFxGraph f3a ##")),
        ("CUDA graphs", HOST, HOST.named(launch="cudaGraphLaunch")),
        ("CUDA graphs", HOST, HOST.named(launch="hipLaunchKernel")),
        ("HIP graphs", HOST.named(launch="hipLaunchKernel"), HOST),
        (
            "fused optimizers",
            HOST.named(region="Optimizer.step#SGD.step"),
            HOST.named(region="Optimizer.step#SGD.step", kern="multi_tensor_apply_kernel"),
        ),
    ),
    Cause.GAPS_BETWEEN_KERNELS: (
        ("inside captured graphs", GAPS.named(launch="cudaGraphLaunch"), GAPS),
        ("CUDA graphs", GAPS, GAPS.named(launch="cudaGraphLaunch")),
    ),
    Cause.DATA_LOADING: (
        ("let workers load them", LOADER.named(loader=ALONE), LOADER.named(loader=WORKERS)),
        (
            "main process works on each batch",
            WORKED.named(loader=WORKERS),
            LOADER.named(loader=WORKERS),
        ),
        (
            "thread that pins memory",
            LOADER.named(loader=WORKERS, other="aten::pin_memory"),
            LOADER.named(loader=WORKERS),
        ),
        ("waits for its workers", LOADER.named(loader=WORKERS), LOADER.named(loader=ALONE)),
        ("waits for its workers", LOADER.named(loader=WORKERS), LOADER.named(loader="load_batch")),
    ),
    Cause.OPTIMIZER: (
        (
            "already fused",
            UPDATE.named(inner="aten::_fused_adam_"),
            UPDATE.named(inner="aten::_foreach_add_"),
        ),
        (
            "(foreach)",
            UPDATE.named(inner="aten::_foreach_add_"),
            UPDATE.named(inner="aten::add_"),
        ),
        ("a compiled step", UPDATE, UPDATE.named(inner=COMPILED)),
    ),
    Cause.CHECKPOINTING: (
        ("mmap=True", RANGE.named(range="load_checkpoint"), RANGE.named(range="save_checkpoint")),
    ),
    Cause.CPU_OPERATORS: (("torch.compile", CPU, CPU.named(region=COMPILED)),),
    Cause.HOST_CODE: (
        ("waits for the other thread", WORKED_MEANWHILE, PAUSE),
        (
            "with_stack=True",
            Drawn("cpu 1 |[aten::mm                              ]" + " " * 60 + "[aten::mm]"),
            Drawn(
                "cpu 1 |[aten::mm                              ]" + " " * 60 + "[aten::mm] [frame]",
                frame="frame",
            ),
        ),
    ),
}
"""Words of a rule, a trace where it applies, and one where it must not; by cause."""

EVERY = [(cause, *case) for cause, cases in CASES.items() for case in cases]


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
            "pinned memory",
            COPY.named(memory=HTOD.format("Pageable")),
            120,
            140,
        ),
        (Cause.CPU_WORK, "run it less often, or move", CODE, 27_000, 33_000),
        (Cause.CPU_WORK, "a call that takes milliseconds", HOST, 200_000, 330_000),
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
    Bound.WAITING_FOR_SMS: "which kernels fill",
    Bound.SYNC: "waits for on its own device",
    Bound.UNKNOWN_WAITS: "is not recorded",
    Bound.LAUNCH: "compare what this rank does there",
}


def context(drawn: Drawn = HOST) -> Context:
    """What kind of run a drawing shows."""
    path = drawn.path
    return find_context(path.dag, path.window)


def seen(cause: Cause, bound: Bound, name: str = "aten::mm", **facts: bool) -> Seen:
    """What a rule looks at: one contributor of a bound, in a run with some facts."""
    most = Evidence(name, "", "train.py:5", 0, name, 1_000, bound.label, 1)
    return Seen(cause, replace(context(), **facts), most, bound.label)


def test_a_late_rank_is_told_by_what_it_is_late() -> None:
    """Each bound has words of its own, which no other has."""
    for bound, words in LATENESS.items():
        said = {other: advice_on(seen(Cause.LATE_RANK, other)) for other in LATENESS}
        assert [other for other, advice in said.items() if words in advice] == [bound]


def test_a_job_of_all_ranks_is_not_told_to_look_at_other_ranks() -> None:
    """Their waits for late ranks are a cause of their own, and no trace is missing."""
    for cause in (Cause.COMMUNICATION, Cause.LATE_RANK):
        alone, together = (
            advice_on(seen(cause, Bound.COMMUNICATION, has_others=whole)) for whole in (False, True)
        )
        assert ("all ranks" in alone or "without a trace" in alone) is True
        assert ("all ranks" in together or "without a trace" in together) is False


def test_ranks_that_share_cores_are_not_told_to_take_more() -> None:
    """The threads of one are at the cost of another."""
    one, several = (
        advice_on(seen(Cause.CPU_OPERATORS, Bound.HOST, shares_cores=shared))
        for shared in (False, True)
    )
    assert ("set_num_threads" in one, "pin each rank to its own cores" in one) == (True, False)
    assert ("set_num_threads" in several, "pin each rank to its own cores" in several) == (
        False,
        True,
    )


def test_collectives_of_the_host_are_told_by_whether_there_is_a_device() -> None:
    """Without one, gloo is what there is to use."""
    with_device, without = (
        advice_on(
            seen(Cause.COMMUNICATION, Bound.COMMUNICATION, "gloo:all_reduce", has_device=device)
        )
        for device in (True, False)
    )
    assert ("nccl backend" in with_device, "nccl backend" in without) == (True, False)


def test_stacks_that_are_there_are_read_first() -> None:
    """Then a new capture with stacks is no advice."""
    code = replace(seen(Cause.HOST_CODE, Bound.UNTRACED_CODE), unread_stacks=True)
    unnamed = replace(code, most=replace(code.most, frame=""))

    assert "--stacks" in advice_on(unnamed)
    assert "find out" not in advice_on(code)


def test_a_trace_of_functions_is_given_no_advice_about_pytorch() -> None:
    """Of a wait for something outside it, the trace does not say what it was."""
    functions = seen(Cause.CPU_OPERATORS, Bound.HOST, is_plain=True)
    gaps = seen(Cause.HOST_CODE, Bound.UNTRACED_CODE, is_plain=True)
    gaps = replace(gaps, most=replace(gaps.most, frame=""))

    assert "the trace does not say" in advice_on(functions)
    assert "let the tracer record more" in advice_on(gaps)
    assert "torch" not in advice_on(functions) + advice_on(gaps)


def test_a_program_without_pytorch_is_given_no_advice_about_it() -> None:
    """An export of Nsight Systems may be of any program on a device."""
    host = seen(Cause.CPU_WORK, Bound.HOST, is_pytorch=False, compiled_share=0.0)
    allocation = seen(Cause.ALLOCATION, Bound.HOST, is_pytorch=False, api="cuda")
    gaps = seen(Cause.HOST_CODE, Bound.UNTRACED_CODE, is_pytorch=False)
    gaps = replace(gaps, most=replace(gaps.most, frame=""))

    assert "less code between them" in advice_on(host)
    assert "cudaMallocAsync" in advice_on(allocation)
    assert "NVTX ranges" in advice_on(gaps)
    said = advice_on(host) + advice_on(allocation) + advice_on(gaps)
    assert not any(word in said for word in ("torch", "PYTORCH", "Python"))


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


def test_every_cause_has_a_last_resort_and_every_condition_is_tested() -> None:
    """The last rule of each has no condition; the words of all others stand in a case above."""
    always = Rule("").when
    assert set(ADVICE) == set(TITLES) == set(Cause) - set(UNRANKED)
    assert all(rules[-1].when is always for rules in (*ADVICE.values(), FIRST))
    words = {text for _, text, _, _ in EVERY} | set(LATENESS.values())
    words |= {
        "nccl backend",
        "set_num_threads",
        "pin each rank to its own cores",
        "all ranks",
        "--stacks",
    }
    words |= {"(torch.profiler.record_function", "the trace does not say", "let the tracer"}
    words |= {"less Python between them", "cudaMallocAsync", "NVTX ranges"}
    words |= {"{compute}"}  # test_light.py
    rules = [*ADVICE.values(), *TIPS.values(), *REMARKS.values(), FIRST]
    untested = [
        rule.says
        for several in rules
        for rule in several
        if rule.when is not always and not any(text in rule.says for text in words)
    ]
    assert untested == []
