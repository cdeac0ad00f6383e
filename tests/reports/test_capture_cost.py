"""What a capture took: bytes by category, what a step takes, whether one would do."""

from __future__ import annotations

from pathlib import Path

import pytest

import htagraph as hg
from htagraph.reports.doctor import capture_cost
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

OPERATOR = b'{"ph":"X","cat":"cpu_op","name":"mm","pid":1,"tid":1,"ts":5,"dur":2}'
FLOW = b'{"ph":"s","cat":"ac2g","name":"ac2g","pid":1,"tid":1,"ts":5,"id":7}'
FRAME = b'{"ph":"X","cat":"python_function","name":"a.py(1): f","pid":1,"tid":1,"ts":1,"dur":9}'


def _said(trace: hg.Trace) -> dict[str, str]:
    return dict(capture_cost(trace, trace.compile()))


def test_bytes_are_those_of_all_events_also_of_what_is_not_loaded():
    """Two operators, a flow and a frame, as long as they stand in the file."""
    listed = b", ".join([OPERATOR, FLOW, OPERATOR, FRAME])
    sizes = hg.load(b'{"traceEvents": [' + listed + b"]}").sizes
    columns = ["category", "n_loaded", "n_skipped", "n_bytes", "kind"]

    assert sizes[columns].to_numpy().tolist() == [
        ["cpu_op", 2, 0, 2 * len(OPERATOR), "op"],
        ["python_function", 0, 1, len(FRAME), "python"],
        ["ac2g", 0, 1, len(FLOW), "flow"],
    ]
    assert sizes["share"].sum() == 1


def test_stacks_are_named_with_what_they_take():
    """One frame beside one operator is more than half of it."""
    events = b", ".join([OPERATOR, FRAME])
    share = len(FRAME) / len(OPERATOR + FRAME)

    assert _said(hg.load(b'{"traceEvents": [' + events + b"]}"))["Python stacks"] == (
        f"{share:.1%} of the capture, due to with_stack=True; without them, host code has no lines "
        "and kernels no modules"
    )


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> hg.Trace:
    """Six steps of the same work, in a compressed file."""
    path = tmp_path_factory.mktemp("alike") / "rank0.json.gz"
    simulate(training_rank(steps=6)).write(path)
    return hg.load(path)


def test_one_of_the_steps_that_are_alike_would_do(alike):
    """Six equal steps are all of the capture but two percent; two have a range more."""
    assert "one is enough and saves 81.8% of the capture (about" in _said(alike)["steps"]


def test_a_step_takes_its_part_of_the_file(alike):
    """Of what is on disk, and what it unpacks to."""
    size = Path(str(alike.path)).stat().st_size
    said = _said(alike)

    assert said["size"].startswith(f"{size / 1000:,.0f} kB on disk, ")
    step = f"166 events, 16.3% of the capture (about {size * 0.163 / 1000:.0f} kB)"
    assert said["a step"] == step


def test_nothing_is_advised_where_steps_differ():
    """The third step saves a checkpoint."""
    trace = hg.Trace.from_events(
        timeline("""
            cpu 1 |{ProfilerStep#0 [a  ]}{ProfilerStep#1 [a  ]}{ProfilerStep#2 [save      ]}
        """)
    )

    assert _said(trace)["steps"] == (
        "3, fewer than three of them typical: one is not representative (`steady_state` says why)"
    )


def test_two_steps_do_not_say_whether_one_would_do():
    """What both do may be chance."""
    trace = hg.Trace.from_events(
        timeline("cpu 1 |{ProfilerStep#0 [a  ]}{ProfilerStep#1 [a  ]}[b  ]")
    )

    assert _said(trace)["steps"] == "2: too few to tell whether one is enough"
    assert _said(trace)["a step"].endswith("; 20.0% is outside steps")
