"""Utilisation, graded: each figure worked out by hand, of kernels with known grids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.model.dag import Dag
from htagraph.model.devices import DeviceProperties
from htagraph.model.events import SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.model.samples import SampleTable, Series
from htagraph.model.window import Window
from htagraph.queries.utilization import utilization, utilization_losses
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.queries.gridded import FOUR_SMS, gridded
from tests.queries.recorded_shapes import A100, Op, recorded
from tests.synth.program import Launch, Machine, Program, Work
from tests.synth.rows import Row, event_table
from tests.synth.simulator import simulate

FACTORS = ["gpu_utilization", "sm_share", "warp_share", "sm_activity", "sm_occupancy"]


def asked(dag: Dag, *columns: str, **options: object) -> list[list[float]]:
    """Columns of the answer for the whole trace, rounded."""
    return utilization(dag, dag.span, **options)[list(columns)].round(6).to_numpy().tolist()


def test_one_small_kernel_is_full_utilisation_of_a_quarter_of_the_device() -> None:
    """One of 4 SMs has a block, of 4 of its 16 warps: 100% is 1/16 of the device."""
    dag = gridded("stream 7 |[k     ]", k=(1, 128))

    assert asked(dag, *FACTORS) == [[1.0, 0.25, 0.25, 0.25, 0.0625]]


def test_idle_time_is_the_first_factor() -> None:
    """The kernel runs 4 of 10 us; a copy is no kernel."""
    dag = gridded("stream 7 |[k ]  [copy]", names={"copy": "Memcpy HtoD"}, k=(4, 512))

    assert asked(dag, *FACTORS, "copy_share") == [[0.333333, 1, 1, 0.333333, 0.333333, 0.5]]


def test_the_last_wave_leaves_multiprocessors_empty() -> None:
    """5 blocks of which 4 fit: all SMs in the first half, one in the second."""
    dag = gridded("stream 7 |[k     ]", k=(5, 512))

    assert asked(dag, "sm_share", "warp_share", "tail_share", "small_grid_share") == [
        [0.625, 1.0, 0.375, 0.0]
    ]


def test_a_window_sees_the_waves_that_it_covers() -> None:
    """The first half of the same kernel is full, the second is the tail."""
    dag = gridded("stream 7 |[k     ]", k=(5, 512))

    assert asked(dag, "start_ns", "sm_share", by="time", bins=2) == [[0, 1.0], [4_000, 0.25]]


def test_kernels_that_run_at_once_add_up_to_the_device_at_most() -> None:
    """Two kernels of 3 blocks each: 3 of 4 SMs alone, 4 of 4 together, for 4, 4 and 4 us."""
    dag = gridded("stream 7 |[a     ]\nstream 9 |    [b     ]", a=(3, 128), b=(3, 128))

    assert asked(dag, "sm_share") == [[0.833333]]


def test_exposed_communication_is_utilisation_too() -> None:
    """A collective of one block runs alone for 8 of 12 us."""
    dag = gridded(
        "stream 7 |[k ]\nstream 9 |[nccl      ]",
        names={"nccl": "ncclDevKernel_AllReduce"},
        k=(3, 512),
        nccl=(1, 512),
    )

    assert asked(dag, "gpu_utilization", "communication_share", "sm_share") == [
        [1.0, 0.666667, 0.5]
    ]


def test_registers_limit_how_many_warps_fit() -> None:
    """128 registers each, rounded by warp: 16 K registers hold one block of 128 threads."""
    dag = gridded("stream 7 |[k     ]", registers=128, k=(4, 128))

    assert asked(dag, "sm_share", "warp_share") == [[1.0, 0.25]]


def test_steps_have_rows_of_their_own() -> None:
    """The kernel fills the device for 7 of the 16 us of the first step, and not in the second."""
    dag = gridded("cpu 1    |{ProfilerStep#1}{ProfilerStep#2}\nstream 7 |[k    ]", k=(4, 512))

    assert asked(dag, "name", "gpu_utilization", "sm_occupancy", by="step") == [
        ["ProfilerStep#1", 0.4375, 0.4375],
        ["ProfilerStep#2", 0.0, 0.0],
    ]


def test_what_is_not_recorded_is_not_estimated() -> None:
    """Most of the time runs a kernel without a grid: utilisation is known, and no more."""
    dag = gridded("stream 7 |[k ][unknown  ]", k=(1, 128))
    found = utilization(dag, dag.span).iloc[0]

    assert found["gpu_utilization"] == 1.0
    assert found["grid_coverage"] == pytest.approx(4 / 15)
    assert found[["sm_share", "sm_activity", "small_grid_share", "sm_occupancy"]].isna().all()


def test_kernels_with_a_grid_stand_for_others_if_they_take_half_of_the_time() -> None:
    """8 of 15 us are known, or 7."""
    for drawing, sm_share in (("[k    ][x   ]", 0.25), ("[k   ][x    ]", np.nan)):
        found = utilization(dag := gridded(f"stream 7 |{drawing}", k=(1, 128)), dag.span).iloc[0]

        assert found["sm_share"] == pytest.approx(sm_share, nan_ok=True)


def test_a_device_that_no_file_describes_may_be_known_by_its_kernels() -> None:
    """8 blocks are 2 per SM, so there are 4; how many warps one holds is not known."""
    events = timeline(
        "stream 7 |[k     ]",
        columns={
            "grid_x": {"k": 2}, "block_x": {"k": 128}, "registers": {"k": 16},
            "blocks_per_sm": {"k": 0.5},
        },
    )  # fmt: skip
    found = utilization(dag := compile_events(events), dag.span).iloc[0]

    assert (found["sm_share"], found["warp_coverage"]) == (0.5, 0.0)
    assert found[["warp_share", "sm_occupancy"]].isna().all()


def test_grids_of_some_hip_calls_are_in_threads() -> None:
    """256 threads in blocks of 128 are 2 blocks; the kernel itself records nothing."""
    events = timeline(
        "cpu 1    |[call >c]\nstream 7 |          [k <c  ]",
        names={"call": "hipExtModuleLaunchKernel"},
        columns={"grid_x": {"call": 256}, "block_x": {"call": 128}},
    )
    amd = DeviceProperties(0, "MI", n_sms=4, warp_size=64, threads_per_sm=2_048)
    dag = compile_events(replace(events, devices=(amd,)))

    assert asked(dag, "sm_share", "grid_coverage", "warp_coverage") == [[0.5, 1.0, 0.0]]


def test_kernels_on_tensor_cores_are_known_by_their_names() -> None:
    """Two of three microseconds."""
    names = {"a": "ampere_fp16_s16816gemm_fp16_128x64", "b": "ampere_sgemm_128x64_nn"}
    dag = gridded("stream 7 |[a     ][b ]", names=names, a=(4, 128), b=(4, 128))

    assert asked(dag, "tensor_share") == [[0.666667]]


def test_what_other_instruments_sampled_stands_beside() -> None:
    """Percents of nvidia-smi and shares of DCGM, of this device: 90% for the first 2 us of 8."""
    dag = gridded("stream 7 |[k     ]", k=(1, 128))
    samples = SampleTable.of(
        [
            (Series("utilization.gpu", "%", 0, "nvidia-smi"), [0, 4_000, 8_000], [90, 100, 100]),
            (Series("DCGM_FI_PROF_SM_ACTIVE", "ratio", 0, "dcgm"), [1_000], [0.25]),
            (Series("DCGM_FI_PROF_SM_ACTIVE", "ratio", 1, "dcgm"), [1_000], [0.5]),
        ]
    )
    dag = replace(dag, events=replace(dag.events, samples=samples))

    assert asked(dag, "sampled_gpu_utilization", "sampled_sm_activity") == [[0.975, 0.25]]
    assert utilization(dag, dag.span)["sampled_sm_occupancy"].isna().all()


def test_what_nsight_compute_measured_stands_beside() -> None:
    """A fifth of the warp slots in one of two kernels, where the estimate is all."""
    dag = gridded("stream 7 |[k     ][other ]", k=(4, 512), other=(4, 512))
    name = "ncu.sm__warps_active.avg.pct_of_peak_sustained_active"
    k = int(dag.events.names().tolist().index("k"))
    column = SparseColumn(np.array([k]), np.array([20.0]))
    columns = {**dag.events.columns, name: column}
    dag = replace(dag, events=replace(dag.events, columns=columns))

    assert asked(dag, "warp_share", "measured_warp_share") == [[1.0, 0.2]]


def test_a_simulated_kernel_is_estimated_as_it_was_launched() -> None:
    """300 blocks on 100 SMs that hold 2 of them: in the second wave, each has one."""
    machine = Machine(n_sms=100, threads_per_sm=1_024)
    kernel = Launch(Work("k", 60_000, n_blocks=300, n_threads=512), 7, 1_000)
    rank = simulate(Program((kernel,), machine))
    graph = hg.Trace.from_events(rank.events).compile()

    assert graph.utilization()[["sm_share", "warp_share"]].to_numpy().tolist() == [[1.0, 0.75]]


def test_no_bins_are_refused() -> None:
    dag = gridded("stream 7 |[k ]", k=(1, 128))
    with pytest.raises(QueryError, match="at least 1"):
        utilization(dag, Window(0, 1, "short"), by="time", bins=0)


def test_a_trace_without_device_work_has_no_rows() -> None:
    dag = drawn_dag("cpu 1 |[op  ]")
    assert utilization(dag, dag.span).empty


def uses(dag: Dag) -> dict[tuple[str, str], float]:
    """Shares by use and kernel."""
    found = utilization_losses(dag, dag.span)
    assert abs(found["share"].sum() - 1) < 1e-9
    return {
        (use, name): round(share, 6)
        for use, name, share in found[["use", "name", "share"]].itertuples(index=False)
    }


def test_small_grids_leave_multiprocessors_and_room_on_the_others() -> None:
    """One of 4 SMs has a block of 4 warps, of 16."""
    assert uses(gridded("stream 7 |[k     ]", k=(1, 128))) == {
        ("small_grid", "k"): 0.75,
        ("few_blocks", "k"): 0.1875,
        ("used", "k"): 0.0625,
    }


def test_the_tail_is_what_the_last_wave_leaves() -> None:
    """Half of the time one of 4 SMs has a block: 3/8 of the slots are empty."""
    assert uses(gridded("stream 7 |[k     ]", k=(5, 512))) == {
        ("tail_wave", "k"): 0.375,
        ("used", "k"): 0.625,
    }


def test_registers_shared_memory_and_the_size_of_blocks_limit() -> None:
    """One block of 4 of 16 warps fits; of 384 threads, one of 12 warps."""
    assert uses(gridded("stream 7 |[k     ]", registers=128, k=(4, 128))) == {
        ("registers", "k"): 0.75,
        ("used", "k"): 0.25,
    }
    assert uses(gridded("stream 7 |[k     ]", shared_memory=40_000, k=(4, 128))) == {
        ("shared_memory", "k"): 0.75,
        ("used", "k"): 0.25,
    }
    assert uses(gridded("stream 7 |[k     ]", k=(4, 384))) == {
        ("block_size", "k"): 0.25,
        ("used", "k"): 0.75,
    }


def test_communication_is_blamed_only_while_nothing_computes() -> None:
    """Alone for 4 of 8 us, it uses one SM of 4; beside it, the compute kernel leaves one."""
    nccl = "ncclDevKernel_AllReduce"
    dag = gridded(
        "stream 7 |[k ]\nstream 9 |[nccl  ]", names={"nccl": nccl}, k=(2, 512), nccl=(1, 512)
    )

    assert uses(dag) == {
        ("small_grid", "k"): 0.125,
        ("used", "k"): 0.25,
        ("communication", nccl): 0.375,
        ("used", nccl): 0.25,
    }


def test_idle_time_and_kernels_without_a_grid_are_losses_too() -> None:
    """4 us each: idle, unknown, and full."""
    dag = gridded("cpu 1    |[op      ]\nstream 7 |    [k ][x ]", k=(4, 512))

    assert uses(dag) == {
        ("idle", ""): 0.333333,
        ("not_recorded", "x"): 0.333333,
        ("used", "k"): 0.333333,
    }


def test_a_row_says_how_its_kernel_was_launched() -> None:
    """Twice, 5 blocks, of which one fits on an SM, in two waves."""
    dag = gridded("stream 7 |[k ][k ]", k=(5, 512))
    row = utilization_losses(dag, dag.span).iloc[0]

    assert row[["n_kernels", "kernel_ns", "n_blocks", "n_fit", "n_waves"]].tolist() == [
        2, 8_000, 5, 1, 2,
    ]  # fmt: skip


def test_shares_that_differ_by_a_nanosecond_are_in_order() -> None:
    """Of 8 ms: the second kernel takes longer, by a part of ten million."""
    events = timeline("stream 7 |[a ][b ]", us_per_column=1_000)
    longer = replace(events, dur_ns=events.dur_ns + (events.names() == "b"))
    found = utilization_losses(dag := compile_events(longer), dag.span)

    assert found["name"].tolist() == ["b", "a"]


@st.composite
def kernels(draw: st.DrawFn) -> Dag:
    """Kernels of any grids at any times, some without a grid, some that communicate."""
    n = draw(st.integers(1, 12))
    rows = []
    for number in range(n):
        name = draw(st.sampled_from(["gemm", "relu", "ncclDevKernel_AllReduce"]))
        start, dur = draw(st.integers(0, 40)), draw(st.integers(0, 30))
        grid = {"grid_x": draw(st.integers(1, 40)), "block_x": draw(st.integers(1, 512))}
        grid |= {"registers": draw(st.integers(16, 255)), "shared_memory": 0}
        row = Row(name, EventKind.KERNEL, "kernel", (0, number % 3), start, dur, 0, number % 3)
        row.values = draw(st.sampled_from([grid, grid, grid, {}]))
        rows.append(row)
    return compile_events(replace(event_table(rows), devices=(FOUR_SMS,)))


@given(dag=kernels(), start=st.integers(-5, 40), length=st.integers(1, 40))
def test_uses_add_up_factors_multiply_and_parts_of_time_are_the_whole(dag, start, length) -> None:
    """Of any kernels in any window."""
    window = Window(start, start + length, "any")
    losses = utilization_losses(dag, window)
    whole = utilization(dag, window).iloc[0]
    parts = utilization(dag, window, by="time", bins=min(length, 3))

    assert losses["share"].sum() == pytest.approx(1)
    assert losses["share"].between(1e-9, 1 + 1e-9).all()  # what is rounding has no row
    idle = losses.loc[losses["use"] == "idle", "share"].sum()
    assert 1 - idle == pytest.approx(whole["gpu_utilization"], abs=1e-9)
    busy = (parts["gpu_utilization"] * parts["dur_ns"]).sum() / length
    assert busy == pytest.approx(whole["gpu_utilization"], abs=1e-9)
    if whole["grid_coverage"] == 1:
        product = whole["gpu_utilization"] * whole["sm_share"] * whole["warp_share"]
        assert whole["sm_occupancy"] == pytest.approx(product)
        used = losses.loc[losses["use"] == "used", "share"].sum()
        assert used == pytest.approx(product)
        empty = whole[["small_grid_share", "tail_share"]].sum() + whole["sm_activity"]
        assert empty <= whole["gpu_utilization"] + 1e-9


LARGE = Op("aten::mm", [[16384, 16384], [16384, 16384]], [("gemm", 20_000)])
"""8.89 ms at the peak: 11.11 ms too long."""
BEST = Op("aten::bmm", [[4, 8192, 8192], [4, 8192, 8192]], [("gemm_b", 5_557)])
"""4.45 ms at the peak: 80% of it."""
OTHER = Op("mylib::rest", [[8]], [("rest", 3_000)])


def costs(found):
    """Cost at the roof and at what is attainable, in us, by group."""
    return {
        row.group: (round(row.cost_ns / 1e3), round(row.attainable_ns / 1e3))
        for row in found.itertuples()
    }


def test_a_product_that_bounds_the_run_saves_its_excess():
    found = recorded(LARGE, OTHER, is_awaited=True).speed_of_light()

    assert costs(found) == {
        "all operators": (11_110, 0),
        "aten::mm 2x bf16[16384, 16384]": (11_110, 0),
    }


def test_attainable_is_what_the_best_of_the_family_reaches():
    """At 80% of the peak, the large product would take 11.1 ms instead of 20."""
    found = recorded(LARGE, BEST, is_awaited=True).speed_of_light()

    assert costs(found) == {
        "all operators": (12_222, 8_886),
        "aten::mm 2x bf16[16384, 16384]": (11_110, 8_886),
        "aten::bmm 2x bf16[4, 8192, 8192]": (1_112, 0),
    }


def test_nobody_waits_for_the_kernel():
    """The host's work is longer: the device has nothing to give."""
    short = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("gemm", 200)])
    graph = recorded(short, OTHER, OTHER, OTHER, is_awaited=True).window("trace")
    found = graph.speed_of_light()

    assert found["cost_ns"].tolist() == [0, 0]


def test_what_if_at_roof_saves_the_same():
    graph = recorded(LARGE, BEST, is_awaited=True)
    saved = [
        graph.dur_ns - hg.what_if(graph, change).dur_ns
        for change in (hg.at_roof(), hg.at_roof("aten::mm"), hg.at_roof("gemm", efficiency=0.5))
    ]

    assert [round(one / 1e3) for one in saved] == [12_222, 11_110, 2_219]


FULL = Op(
    "aten::mm",
    [[4096, 4096], [4096, 4096]],
    [("ampere_sgemm_128x64_nn", 8_000)],
    ["float", "float"],
)
"""On an A100, 19.5 TFLOP/s in FP32 and 156 in TF32, where it takes 1 ms: an eighth."""
ROUNDED = FULL._replace(kernels=[("cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4", 1_000)])
NARROW = FULL._replace(
    dims=[[32768, 32768], [32768, 16]], kernels=[("ampere_sgemm_32x32_nn", 6_000)]
)
"""4.3 GB take 2.76 ms at memory bandwidth: more than an eighth of 6."""


@pytest.mark.parametrize(("ops", "saved_us"), [([FULL, OTHER], 7_000), ([NARROW, OTHER], 3_235)])
def test_products_in_fp32_would_be_faster_in_tf32(ops, saved_us):
    graph = recorded(*ops, device=A100, is_awaited=True).window("trace")
    saved_ns = graph.dur_ns - hg.what_if(graph, hg.allow_tf32()).dur_ns

    assert saved_ns == graph.speed_of_light()["tf32_ns"][0]
    assert saved_ns // 1000 == saved_us


@pytest.mark.parametrize("other", [ROUNDED, FULL._replace(types=["c10::Half"] * 2), OTHER])
def test_what_is_allowed_or_is_not_fp32_cannot_be_allowed(other):
    """Another product runs as TF32: the library prefers CUDA cores for this one."""
    ops = [FULL, other] if other is ROUNDED else [other]
    graph = recorded(*ops, device=A100, is_awaited=True)

    assert set(graph.speed_of_light()["tf32_ns"]) <= {0}
    with pytest.raises(QueryError, match="no product runs in FP32 where TF32 is faster"):
        hg.what_if(graph, hg.allow_tf32()).dur_ns  # noqa: B018


def test_the_call_of_the_change():
    assert str(hg.at_roof()) == "at_roof()"
    assert str(hg.at_roof("aten::mm", efficiency=0.8)) == "at_roof('aten::mm', efficiency=0.8)"


def test_a_change_without_a_known_roof_is_refused():
    with pytest.raises(QueryError, match="no such work is above a known roof"):
        hg.what_if(recorded(OTHER), hg.at_roof()).dur_ns  # noqa: B018
    with pytest.raises(QueryError, match="above 0 and at most 1, not 2"):
        hg.at_roof(efficiency=2)


PRODUCT = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("gemm", 200)])
"""138.9 us at the peak."""


def test_a_product_in_a_step_of_a_millisecond():
    found = recorded(PRODUCT, Op("mylib::rest", [[8]], [("rest", 200)])).mfu()

    assert found["part"].tolist() == ["2 steps", "ProfilerStep#0", "ProfilerStep#1"]
    assert found["mfu_share"].tolist() == pytest.approx([0.0695, 0.139, 0.0], abs=0.0003)
    assert found["modelled_share"].tolist() == pytest.approx([0.5, 1.0, 0.0])


def test_a_device_without_known_peaks_has_none():
    assert recorded(PRODUCT, device=None).mfu().empty


def test_a_host_that_runs_ahead_does_not_shorten_its_steps():
    """Steps of 999 us on the host launch 3 ms each: they end at 3.02 and 6.02."""
    slow = PRODUCT._replace(kernels=[("gemm", 3_000)])
    found = recorded(slow, slow).mfu()

    assert found["window_ns"].tolist()[1:] == [3_020_000, 3_000_000]
    assert found["mfu_share"].tolist()[1:] == pytest.approx([0.0460, 0.0463], abs=1e-4)
