"""What was sampled beside a trace: means, extremes, and what samples do not speak of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.model.samples import SampleTable, Series
from htagraph.model.window import Window
from htagraph.queries.counters import sampled_counters
from htagraph.synth import timeline

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
