"""SYNC edges of copies that hold their calls: in both directions, however late their ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule
from htagraph.synth import timeline
from tests.drawn import drawn_dag, drawn_graph
from tests.real_traces import case, located
from tests.synth.draw import Draw
from tests.synth.program import Action, Launch, Op, Program, Synchronize, Work
from tests.synth.simulator import simulate

_FROM_PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
_FROM_PINNED = "Memcpy HtoD (Pinned -> Device)"
_FROM_HOST = "Memcpy HtoD (Host -> Device)"
_TO_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"
_TO_PINNED = "Memcpy DtoH (Device -> Pinned)"
_TO_HOST = "Memcpy DtoH (Device -> Host)"

# The copy begins 4 us before its call returns, and ends 6 us after.
_COPY = """
    cpu 1    |[C >m                 ]
    stream 7 |                   [M <m     ]
"""


@pytest.mark.parametrize(
    ("name", "call", "waits"),
    [
        (_FROM_PAGEABLE, "cudaMemcpyAsync", True),
        (_FROM_PAGEABLE, "cudaMemcpy", True),
        (_FROM_HOST, "hipMemcpyWithStream", True),
        (_TO_PAGEABLE, "cudaMemcpyAsync", True),
        (_TO_HOST, "hipMemcpyWithStream", True),
        (_TO_HOST, "hipMemcpyAsync", False),
        (_FROM_HOST, "hipMemcpyAsync", False),
        (_FROM_PINNED, "cudaMemcpyAsync", False),
        (_TO_PINNED, "cudaMemcpyAsync", False),
        ("Memcpy DtoD (Device -> Device)", "cudaMemcpy", False),
    ],
)
def test_a_copy_that_begins_within_its_call_holds_it(arrows, name, call, waits):
    """If the call is synchronous, or the memory pageable; other calls may return at once."""
    dag = drawn_dag(_COPY, names={"C": call, "M": name})

    assert bool(arrows(dag, "sync")) is waits


@pytest.mark.parametrize(("n_bytes", "waits"), [(65_536, False), (65_537, True)])
def test_a_small_copy_from_pageable_memory_is_staged_at_once(arrows, n_bytes, waits):
    """CUDA takes over 64 KiB, and the call returns."""
    names = {"C": "cudaMemcpyAsync", "M": _FROM_PAGEABLE}
    dag = drawn_dag(_COPY, names=names, columns={"bytes": {"M": n_bytes}})

    assert bool(arrows(dag, "sync")) is waits


def test_a_staged_copy_ran_until_its_call_returned(arrows):
    """The last part is copied after that. The copy, and so the call, waited for the kernel."""
    graph = drawn_graph(
        """
            cpu 1    |[launch >a][C >m                           ]
            stream 7 |     [k1 <a                     ][M <m             ]
            """,
        names={"C": "cudaMemcpyAsync", "M": _FROM_PAGEABLE},
    )
    segments = graph.window((0, 45_000)).critical_path().segments

    assert arrows(graph.dag, "sync") == [(f"{_FROM_PAGEABLE}<", "cudaMemcpyAsync>", 11)]
    assert list(zip(segments["bound"], segments["dur_ns"], strict=True)) == [
        ("launch", 5_000),
        ("compute", 28_000),
        ("memory", 12_000),
    ]


def test_a_copy_that_begins_after_its_call_was_staged(arrows):
    """The call had returned, and did not wait."""
    dag = drawn_dag(
        """
        cpu 1    |[C >m   ]
        stream 7 |           [M <m     ]
        """,
        names={"C": "cudaMemcpyAsync", "M": _FROM_PAGEABLE},
    )

    assert arrows(dag, "sync") == []


def test_synchronous_copies_to_the_device_bound_its_clock(arrows):
    """On MI300, they end up to 9 us after their calls, like copies to the host."""
    dag = drawn_dag(
        """
        cpu 1    |[launch >a][H >m                     ]      [launch >b]
        stream 7 |      [k1 <a                   ][M <m  ]          [k2 <b]
        """,
        names={"H": "hipMemcpyWithStream", "M": _FROM_HOST},
    )

    assert dag.calibration.clock_shift_ns == -2_000
    assert arrows(dag, "sync") == [(f"{_FROM_HOST}>", "hipMemcpyWithStream>", 0)]


def test_copies_from_pageable_memory_say_nothing_about_clocks():
    """Their calls return once the last part is staged."""
    dag = drawn_dag(_COPY, names={"C": "cudaMemcpyAsync", "M": _FROM_PAGEABLE})

    assert dag.calibration.clock_shift_ns == 0
    assert dag.calibration.clock_overlap_ns == 0


@pytest.mark.parametrize(("starts", "shift_ns"), [(7, -5_000), (0, 0)])
def test_copies_held_by_kernels_are_charged_to_the_kernels(starts, shift_ns):
    """Five steps of 200 ms, as of owlv2 on MI300: the copy of a batch waits for a kernel."""
    host, stream = "", ""
    for step in range(5):
        host += f"[L >k{step}][aten::conv2d".ljust(299) + "]"
        host += f"[H >m{step}".ljust(349) + "]" + "[aten::to".ljust(99) + "]"
        host += "{D".ljust(1_249) + "}"
        stream += " " * starts + f"[K <k{step}".ljust(639 - starts) + f"][M <m{step}   ]"
        stream = stream.ljust(2_000 * (step + 1))
    events = timeline(
        f"cpu 1    |{host}\nstream 7 |{stream}",
        us_per_column=100,
        names={
            "L": "hipLaunchKernel",
            "H": "hipMemcpyWithStream",
            "M": _FROM_HOST,
            "K": "Cijk_Ailk_Bljk_MT128x128",
            "D": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        },
    )
    late_ns = np.where(events.kind == EventKind.MEMCPY, 5_000, 0)
    graph = hg.Trace.from_events(replace(events, dur_ns=events.dur_ns + late_ns)).compile()
    path = graph.critical_path().segments
    share = path.groupby("bound", observed=True)["dur_ns"].sum() / path["dur_ns"].sum()
    saves_ns = hg.what_if(graph, hg.scale("Cijk_*", by=0.5)).saves_ns

    assert graph.dag.calibration.clock_shift_ns == shift_ns
    assert share["compute"] == pytest.approx(0.32, abs=0.005)
    assert share["data_loading"] == pytest.approx(0.625, abs=0.005)
    assert share["host"] == pytest.approx(0.05, abs=0.005)
    assert saves_ns is not None
    assert saves_ns.expected_ns == pytest.approx(159_000_000, abs=1_000_000)


@pytest.mark.parametrize(
    ("name", "n_long"),
    [
        case("hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz", 3),
        case("hta/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz", 3),
        case("kineto/worker0.1623143089861.pt.trace.json.gz", 6),
        case("hta/trace_diff/control/control.json.gz", 18),
        case("tracelens/sglang_Qwen3-8B_decode.json.gz", 1),
    ],
)
def test_no_long_copy_call_of_a_real_trace_lacks_its_copy(name, n_long):
    """Calls of over 1 ms wait, for copies to the device and for copies from it."""
    dag = hg.load(located(name)).compile().dag
    events = dag.events
    is_copy = call_meanings(events) == CallMeaning.COPY
    long = np.flatnonzero(is_copy & (events.dur_ns > 1_000_000))
    held = dag.edges.head[dag.edges.rule == Rule.SYNCHRONOUS_COPY] >> 1

    assert len(long) == n_long
    assert np.isin(long, held).all()


def _copies(seed: int) -> Program:
    """Kernels and copies of all sorts; those below ``waits`` hold their calls."""
    draw = Draw.of(f"copies {seed}")
    body: list[Action] = []
    for _ in range(60):
        body += [
            Op("aten::mm", (draw.spend(6_000), draw.launch("gemm", draw.ns(5, 900))))
            for _ in range(draw.random.randint(0, 3))
        ]
        call_ns, copy_ns = draw.ns(3, 40), draw.ns(2, 40)
        large_ns, n_bytes = draw.ns(150, 20_000), draw.random.randint(1 << 20, 1 << 28)
        waits, copy = draw.random.choice(
            [
                (True, Launch(Work(_TO_PAGEABLE, copy_ns, 4), is_blocking=True)),
                (True, Launch(Work(_FROM_PAGEABLE, large_ns, n_bytes), is_blocking=True)),
                (
                    True,
                    Launch(
                        Work(_FROM_PAGEABLE, large_ns, n_bytes),
                        is_blocking=True,
                        staged_ns=draw.ns(20, 100),
                    ),
                ),
                (False, Launch(Work(_FROM_PAGEABLE, copy_ns, 4_096), 7, call_ns)),
                (False, Launch(Work(_FROM_PINNED, large_ns, n_bytes), 9, call_ns)),
                (False, Launch(Work(_TO_PINNED, copy_ns, n_bytes), 9, call_ns)),
            ]
        )
        body.append(Op("waits" if waits else "returns", (draw.spend(4_000), copy)))
    return Program((*body, Synchronize()), sync_records=False, seed=seed)


def test_in_simulated_programs_calls_wait_that_do():
    """All 590 that wait are found, and no other. Of the 610 others, 27% begin within the call."""
    n_waits = n_chance = n_others = 0
    for seed in range(20):
        dag = compile_events(simulate(_copies(seed)).events)
        events = dag.events
        work = np.flatnonzero(events.kind == EventKind.MEMCPY)
        call = dag.launch[work]
        waits = events.names(dag.parent[call]) == "waits"
        held = np.isin(2 * call + 1, dag.edges.head[dag.edges.rule == Rule.SYNCHRONOUS_COPY])

        assert held.tolist() == waits.tolist()
        n_waits, n_others = n_waits + waits.sum(), n_others + (~waits).sum()
        n_chance += (events.ts_ns[work] < events.end_ns[call])[~waits].sum()

    assert (n_waits, n_others, n_chance) == (590, 610, 164)
