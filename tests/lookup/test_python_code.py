"""Which line of Python code a host thread runs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers

from htagraph import CriticalPath, Trace
from htagraph.model.kinds import EventKind
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

NAMES = {
    "main": "train.py(9): <module>",
    "hook": "train.py(4): hook",
    "parse": "<built-in function parse>",
    "loads": "json/decoder.py(343): raw_decode",
    "graph": "torch/autograd/graph.py(1100): _engine_run_backward",
    "autograd": "torch::autograd::AccumulateGrad",
    "loader": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "item": "train.py(28): __getitem__",
}
FRAMES = ("main", "hook", "parse", "loads", "graph", "item", "f0", "f1", "f2")


def path_of(drawing: str, call_from: dict[str, str]) -> CriticalPath:
    """The path of a drawing (10 us a column) in which some boxes are frames."""
    events = timeline(
        drawing,
        us_per_column=10,
        names={
            short: name for short, name in NAMES.items() if re.search(rf"[\[{{]{short} ", drawing)
        },
        columns={"call_from": call_from},
    )
    is_frame = np.isin(events.names(), [NAMES.get(name, name) for name in FRAMES])
    kind = np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8)
    return Trace.from_events(replace(events, kind=kind)).compile().critical_path()


def lines(drawing: str, call_from: dict[str, str]) -> list[tuple[str, int]]:
    """Lines of the path of a drawing (10 us a column) with their time in us, in order."""
    path = path_of(drawing, call_from)
    found = path.attributed_time
    assert int(found["dur_ns"].sum()) == path.dur_ns
    return [
        (frame, dur_ns // 1000)
        for frame, dur_ns in zip(found["frame"], found["dur_ns"], strict=True)
    ]


def test_a_builtin_is_the_line_of_user_code_that_calls_it():
    """The innermost frame of user code, at the call that is under way."""
    drawing = """
        thread 1 |[main                                              ]
        thread 1 |[aten::mm][loads  [parse      ]  ]  [aten::mm      ]
    """

    assert lines(drawing, {"loads": "train.py:17", "parse": "json/decoder.py:337"}) == [
        ("", 100),
        ("train.py:17", 240),
        ("train.py, after line 17", 20),
        ("", 160),
    ]


def test_without_lines_of_calls_the_function_is_named():
    """Older profilers record only the frames."""
    assert lines(
        """
        thread 1 |[hook                         ]
        thread 1 |[aten::mm][parse      ][aten::mm      ]
        """,
        {},
    ) == [("", 100), ("train.py(4): hook", 130), ("", 160)]


def test_a_hook_in_an_operator_is_its_own_code_and_no_caller_is():
    """A frame inside the operator has its time; one around it called the operator."""
    drawing = """
        thread 1 |[main                                                 ]
        thread 1 |   [graph                                           ]
        thread 1 |    [autograd  [hook  [parse       ]   ]           ]
    """

    assert lines(
        drawing,
        {
            "graph": "train.py:159",
            "hook": "torch/autograd/graph.py:1113",
            "parse": "train.py:5",
        },
    ) == [
        ("", 110),
        ("train.py(4): hook", 70),
        ("train.py:5 in hook", 140),
        ("train.py in hook, after line 5", 40),
        ("", 120),
    ]


def test_data_loading_names_the_line_of_the_dataset():
    """Not only gaps have lines."""
    assert lines(
        """
        thread 1 |{loader                  }[aten::mm      ]
        thread 1 | [item [parse         ]  ]
        """,
        {"item": "torch/utils/data/_utils/fetch.py:56", "parse": "train.py:29"},
    ) == [
        ("", 10),
        ("train.py(28): __getitem__", 60),
        ("train.py:29 in __getitem__", 160),
        ("train.py in __getitem__, after line 29", 30),
        ("", 160),
    ]


@pytest.mark.parametrize("frame", ["parse", "loads"])
def test_a_stack_without_user_code_names_its_innermost_frame(frame):
    """A thread of a library; its builtin is called by nobody that is known."""
    assert lines(f"thread 1 |[aten::mm][{frame}      ][aten::mm      ]", {})[1][0] == NAMES[frame]


def test_every_call_in_a_gap_has_its_own_time():
    """Three lines in one gap, the largest in its middle."""
    found = path_of(
        """
        thread 1 |[main                                         ]
        thread 1 |[aten::mm][f0    ][f1        ][f2   ][aten::mm]
        """,
        {"f0": "train.py:20", "f1": "train.py:21", "f2": "train.py:22"},
    ).attributed_time

    assert [(frame, dur_ns // 1000) for frame, dur_ns in found[["frame", "dur_ns"]].values] == [
        ("", 100),
        ("train.py:20", 80),
        ("train.py:21", 120),
        ("train.py:22", 70),
        ("", 100),
    ]
    assert found["segment"].nunique() == 3


@given(program=programs(), seed=integers(0, 2**32 - 1))
def test_lines_tile_the_path_whatever_the_frames(program, seed):
    """Frames may overlap, cross operators and have no length: no nanosecond is lost."""
    events, random = simulate(program).events, np.random.default_rng(seed)
    python = random.random(len(events)) < 0.5
    kind = np.where(python & (events.kind == EventKind.OP), EventKind.PYTHON, events.kind)
    dur_ns = np.where(python, events.dur_ns * random.integers(0, 3, len(events)), events.dur_ns)
    dur_ns = np.where(kind == EventKind.PYTHON, dur_ns, events.dur_ns)
    mixed = replace(events, kind=kind.astype(np.int8), dur_ns=dur_ns.astype(np.int64))
    path = Trace.from_events(mixed).compile().critical_path()

    found = path.attributed_time

    assert int(found["dur_ns"].sum()) == path.dur_ns
    assert (found["dur_ns"] > 0).all()
    assert found["start_ns"].is_monotonic_increasing
