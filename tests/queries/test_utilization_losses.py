"""Where warp slots go: each reason in a drawing, and the sum."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.queries.utilization import utilization, utilization_losses
from htagraph.synth import timeline
from htagraph.synth.rows import Row, event_table
from tests.queries.gridded import FOUR_SMS, gridded


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
