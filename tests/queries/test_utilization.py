"""Utilisation, graded: each figure worked out by hand, of kernels with known grids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.model.dag import Dag
from htagraph.model.devices import DeviceProperties
from htagraph.model.events import SparseColumn
from htagraph.model.samples import SampleTable, Series
from htagraph.model.window import Window
from htagraph.queries.utilization import utilization
from htagraph.synth import timeline
from tests.queries.gridded import gridded
from tests.synth.program import Launch, Machine, Program, Work
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
    dag = compile_events(timeline("cpu 1 |[op  ]"))
    assert utilization(dag, dag.span).empty
