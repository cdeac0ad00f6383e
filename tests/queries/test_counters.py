"""Counters: of the trace, of other instruments, of the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.model.dag import Dag
from htagraph.model.events import SparseColumn
from htagraph.model.samples import SampleTable, Series
from htagraph.model.window import Window
from htagraph.queries.counters import counters, cupti_counters, cupti_rates, sampled_counters
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.queries.counted import ALL, FMA, TWO_KERNELS, VALUES, args, counted

_DAG = drawn_dag("""
    us       |0         10        20        30        40
    cpu 1    |[launch >a][launch >b][launch >c]
    stream 7 |          [a <a               ][b <b][c <c]
""")


def _points(frame) -> list[list]:
    return [
        [ts // 1000, dur // 1000, value]
        for ts, dur, value in frame[["ts_ns", "dur_ns", "value"]].to_numpy()
    ]


def test_the_queue_holds_what_is_launched_and_has_not_started():
    """A waits from 0 to 10; b from 11; c from 22; b starts at 31 and c at 37."""
    assert _points(counters(_DAG, _DAG.span)) == [
        [0, 10, 1],
        [10, 1, 0],
        [11, 11, 1],
        [22, 9, 2],
        [31, 6, 1],
        [37, 6, 0],
    ]


def test_a_window_begins_with_the_level_that_holds():
    """From 25 on: two are waiting."""
    assert _points(counters(_DAG, Window(25_000, 33_000, "part"))) == [[25, 6, 2], [31, 2, 1]]


def test_a_track_is_summed_up_over_time():
    """Of 43 us, nothing waits for 7 us, one launch for 27, two for 9."""
    found = counters(_DAG, _DAG.span, by="track")

    columns = ["stream", "dur_ns", "n_levels", "min", "p50", "p90", "max"]
    assert found[columns].to_numpy().tolist() == [[7, 43_000, 6, 0, 1, 2, 2]]
    assert found["value"].tolist() == [(27 + 2 * 9) / 43]


def test_bandwidth_is_that_of_the_copies_that_run_at_once():
    """Two copies of 2 and 3 GB/s overlap for 5 us; nothing is left over when both have ended."""
    dag = drawn_dag(
        """
            us       |0         10        20
            stream 7 |[Memcpy HtoD A]
            stream 9 |          [Memcpy HtoD B]
            """,
        names={
            "Memcpy HtoD A": "Memcpy HtoD (Pinned -> Device)",
            "Memcpy HtoD B": "Memcpy HtoD (Pageable -> Device)",
        },
        columns={"memory_bandwidth": {"Memcpy HtoD A": 0.2, "Memcpy HtoD B": 0.1}},
    )
    frame = counters(dag, dag.span, name="memory_bandwidth")

    assert frame["name"].unique().tolist() == ["Memcpy HtoD"]
    assert frame["value"].tolist() == [0.2, 0.3, 0.1]


def test_bandwidth_follows_from_bytes_where_it_was_not_recorded():
    """16,000 bytes in 8 us are 2 GB/s."""
    dag = drawn_dag("stream 7 |[Memset][k]", columns={"bytes": {"Memset": 16_000}})

    assert counters(dag, dag.span, name="memory_bandwidth")["value"].tolist() == [2.0, 0.0]


US = 1_000
POWER = Series("power.draw", "W", 0, "nvidia-smi", 500)
STEPS = """
    cpu 1    |{ProfilerStep#0     }{ProfilerStep#1     }
    stream 7 | [gemm ]
"""


def _dag(*parts: tuple[Series, list[int], list[float]]) -> Dag:
    """Two steps of 21 us beside samples, whose times are in us from the start of the first."""
    events = timeline(STEPS)
    first = int(events.ts_ns.min())
    moved = [(series, first + US * np.array(at), value) for series, at, value in parts]
    return compile_events(replace(events, samples=SampleTable.of(moved)))


def test_each_moment_is_like_its_nearest_sample():
    """100 W until 10 us, half way to the next sample, then 300 W: a quarter and three quarters."""
    dag = _dag((POWER, [0, 20, 40], [100.0, 300.0, 300.0]))
    first = dag.span.start_ns
    frame = sampled_counters(dag, Window(first + 5 * US, first + 25 * US, "w"))

    assert frame.to_dict("records") == [
        {
            "device": 0,
            "instrument": "nvidia-smi",
            "name": "power.draw",
            "unit": "W",
            "step": -1,
            "start_ns": first + 5 * US,
            "dur_ns": 20 * US,
            "n_samples": 1,
            "mean": 250.0,
            "min": 100.0,
            "max": 300.0,
            "uncertainty_ns": 500,
        }
    ]


def test_a_window_between_two_samples_is_like_the_nearer_and_has_none_of_its_own():
    """A log of seconds, a window of microseconds: no samples, a value all the same."""
    dag = _dag((POWER, [0, 20, 40], [100.0, 300.0, 200.0]))
    first = dag.span.start_ns
    frame = sampled_counters(dag, Window(first + 22 * US, first + 24 * US, "w"))

    assert frame[["n_samples", "mean", "min", "max"]].to_numpy().tolist() == [[0, 300, 300, 300]]


def test_what_no_sample_speaks_of_has_no_row():
    """Samples ended long before the window, and one that is alone counts for its uncertainty."""
    dag = _dag((POWER, [0, 2], [1.0, 2.0]), (replace(POWER, name="alone"), [10], [3.0]))
    first = dag.span.start_ns

    assert sampled_counters(dag, Window(first + 20 * US, first + 30 * US, "w")).empty
    near = sampled_counters(dag, Window(first + 10 * US, first + 20 * US, "w"))
    assert near[["name", "mean"]].to_numpy().tolist() == [["alone", 3.0]]


def test_by_step_a_series_has_a_row_for_each_step():
    """The first step has two samples, the second the third."""
    dag = _dag((POWER, [0, 10, 30], [1.0, 2.0, 4.0]))
    frame = sampled_counters(dag, dag.span, by="step")

    assert frame[["step", "n_samples", "min", "max"]].to_numpy().tolist() == [
        [0, 2, 1.0, 4.0],
        [1, 1, 4.0, 4.0],
    ]


@pytest.mark.parametrize(("n_samples", "n_stretches"), [(6, 6), (4_000, 300)])
def test_over_time_there_is_a_stretch_for_each_sample_or_a_few_hundred(n_samples, n_stretches):
    """Stretches tile the window, and keep the mean and the extremes of all of it."""
    at = np.linspace(0, 42, n_samples)
    dag = _dag((POWER, at.tolist(), (at % 7).tolist()))
    frame, whole = (sampled_counters(dag, dag.span, by=by) for by in ("time", "window"))

    assert len(frame) == n_stretches
    assert frame["dur_ns"].sum() == dag.span.dur_ns
    assert (frame["mean"] * frame["dur_ns"]).sum() / dag.span.dur_ns == pytest.approx(
        whole["mean"][0]
    )
    assert (frame["min"].min(), frame["max"].max()) == (whole["min"][0], whole["max"][0])


def test_the_nth_range_belongs_to_the_nth_launch():
    """Kernels run one by one while they are counted."""
    frame = cupti_counters(TWO_KERNELS, ALL, args=args)

    assert len(frame) == 2 * 3
    assert frame.drop_duplicates("event")[["name", "op", "top_op"]].to_numpy().tolist() == [
        ["gemm", "aten::mm", "aten::linear"],
        ["gemm", "aten::mm", "aten::linear"],
    ]
    assert frame.drop_duplicates("event")["launch"].is_unique


def test_without_as_many_launches_as_ranges_nothing_is_guessed():
    """One launch, two ranges: who knows which."""
    dag = counted("cpu 1 |[aten::mm [launch]]\nstream 7 |                      [gemm][gemm]")
    frame = cupti_counters(dag, ALL, args=args)

    assert set(frame["launch"]) == {-1}
    assert set(frame["op"]) == {""}


def test_args_must_be_given_for_every_range():
    """Half an answer would be a wrong one."""
    with pytest.raises(QueryError, match="1 of 2 events"):
        cupti_counters(TWO_KERNELS, ALL, args=lambda _: [VALUES])


def counted_rank(rank: int) -> str:
    """A trace of one launch and, within it, one range, which counts 64 bytes, or 128."""
    event = '{{"ph": "X", "pid": 1, "tid": {tid}, "ts": {ts}, "dur": 9, {rest}}}'
    launch = event.format(
        tid=1, ts=10, rest='"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {}'
    )
    args = f'"args": {{"dram__bytes.sum": {64 * (rank + 1)}}}'
    counted = event.format(
        tid=7, ts=12 + rank, rest=f'"cat": "cuda_profiler_range", "name": "gemm", {args}'
    )
    about = f'"distributedInfo": {{"rank": {rank}, "world_size": 2}}'
    return f'{{{about}, "traceEvents": [{launch}, {counted}]}}'


def test_counters_of_all_ranks_of_a_job_are_read(tmp_path):
    """From the file of each; kept graphs are without them."""
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}.json").write_text(counted_rank(rank))
    job = hg.load_job(tmp_path)
    found = job.cupti_counters()

    assert found[["rank", "name", "counter", "value"]].to_numpy().tolist() == [
        [0, "gemm", "dram__bytes.sum", 64.0],
        [1, "gemm", "dram__bytes.sum", 128.0],
    ]
    assert job.cupti_rates()["rank"].tolist() == [0, 1]


def test_a_fused_multiply_add_is_two_operations():
    """Twice 400 * 2 + 200, and 500 bytes, in 20 us: 100 MFLOP/s, two operations a byte."""
    frame = cupti_rates(TWO_KERNELS, ALL, args=args)

    assert frame.iloc[0].tolist() == ["gemm", 2, 20_000, 2_000.0, 1_000.0, 1e8, 5e7, 2.0]


def test_a_sum_and_a_product_are_one_operation_each():
    """Of single, double and half precision; 3 + 5 of each of two kernels."""
    for kind in "fdh":
        counter = f"smsp__sass_thread_inst_executed_op_{kind}{{}}_pred_on.sum"
        values = {counter.format("add"): 3.0, counter.format("mul"): 5.0}
        frame = cupti_rates(TWO_KERNELS, ALL, args=lambda events, of=values: [of for _ in events])

        assert frame["flop"].tolist() == [16.0]


def test_what_was_not_counted_is_not_a_number():
    """Operations without traffic have no intensity."""
    frame = cupti_rates(TWO_KERNELS, ALL, args=lambda events: [{FMA: 1.0} for _ in events], by="op")

    assert frame["name"].tolist() == ["aten::mm"]
    assert frame["flop"].tolist() == [4.0]
    assert frame[["bytes", "bytes_per_s", "flop_per_byte"]].isna().all(axis=None)


def test_rates_of_nsight_compute_are_multiplied_with_the_time_that_it_measured():
    """2 FLOP a cycle at 1 GHz, and 3 GB/s, for 4 us: 16 kFLOP, 12 kB; in 10 us of the trace."""
    events = timeline("stream 7 |[gemm    ]")
    metrics = {
        "gpu__time_duration.sum": 4_000.0,
        "smsp__cycles_elapsed.avg.per_second": 1e9,
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": 2.0,
        "dram__bytes.sum.per_second": 3e9,
    }
    columns = {
        f"ncu.{name}": SparseColumn(np.array([0]), np.array([value]))
        for name, value in metrics.items()
    }
    frame = cupti_rates(compile_events(replace(events, columns=columns)), ALL, args=args)

    assert frame.iloc[0].tolist() == ["gemm", 1, 10_000, 16_000, 12_000, 1.6e9, 1.2e9, 4 / 3]


def test_traffic_that_is_counted_twice_counts_once():
    """Total, and read and written, of one kernel."""
    values = {"dram__bytes.sum": 500.0, "dram__bytes_read.sum": 300.0, "dram__bytes_write.sum": 200}
    frame = cupti_rates(TWO_KERNELS, ALL, args=lambda events: [values for _ in events])

    assert frame["bytes"].tolist() == [1_000.0]
