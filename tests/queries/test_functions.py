"""What functions cost the critical path, and its flame graph."""

from __future__ import annotations

import gzip
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import htagraph as hg
from htagraph import Trace, TraceGraph
from htagraph.errors import HTAGraphError
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import SymbolTable
from htagraph.queries.operators import worth_removing
from htagraph.queries.questions import QUESTIONS
from htagraph.readers.kineto.sampled_stacks import KEYS
from htagraph.synth import timeline
from tests.functions_removed import all_removed
from tests.public_traces import FOLDER
from tests.real_traces import CAPTURES, TRACES, cases, located
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

NAMES = {
    "step": "train.py(9): step",
    "loss": "train.py(4): loss",
    "part": "train.py(5): <listcomp>",
    "norm": "layers.py(2): norm",
    "linear": "torch/nn/functional.py(1): linear",
    "back": "torch/_tensor.py(7): backward",
    "enter": "torch/profiler.py(3): __enter__",
    "mm": "aten::mm",
    "add": "aten::add",
    "node": "MmBackward0",
    "range": "## validation ##",
}
FRAMES = ("step", "loss", "part", "norm", "linear", "back", "enter")
STEP = """
    thread 1 |[step                                                                   ]
    thread 1 | [loss                                  ][back               ]  [norm ]
    thread 1 |   [part              ][norm   ]          [node            ]
    thread 1 |    [linear          ]  [add  ]            [mm2        ]
    thread 1 |     [mm          ]
"""
"""A step of 720 us: `loss` calls a library in a comprehension, and `norm`."""


def drawn(drawing: str) -> TraceGraph:
    """The graph of a drawing (10 us a column) in which some boxes are Python frames."""
    shorts = [short for short in NAMES if f"[{short} " in drawing or f"{{{short} " in drawing]
    columns = {"sequence": {"mm": 3, "node": 3}, "fwd_thread": {"node": 1}}
    events = timeline(
        drawing,
        us_per_column=10,
        names={short: NAMES[short] for short in shorts},
        columns={
            name: {one: of[one] for one in of if one in shorts} for name, of in columns.items()
        },
    )
    return Trace.from_events(with_frames(events, [NAMES[short] for short in FRAMES])).compile()


def with_frames(events: EventTable, names: list[str]) -> EventTable:
    """The events, of which those with some names are Python frames."""
    kind = np.where(np.isin(events.names(), names), EventKind.PYTHON, events.kind)
    return replace(events, kind=kind.astype(np.int8))


def of(graph: TraceGraph, *columns: str) -> dict[str, tuple[object, ...]]:
    """Some columns of the answer, by function; times in us."""
    found = graph.functions()
    return {
        row["function"]: tuple(
            row[name] // 1_000 if name.endswith("_ns") else row[name] for name in columns
        )
        for row in found.to_dict("records")
    }


def test_own_time_has_libraries_and_operators_and_a_comprehension_is_its_function():
    """The window begins with the first operator, and ends with the last."""
    assert of(drawn(STEP), "place", "own_ns", "inclusive_ns", "backward_ns", "mostly") == {
        "loss": ("train.py:4", 270, 360, 180, "aten::mm"),
        "step": ("train.py:9", 190, 550, 0, "mm2"),
        "norm": ("layers.py:2", 90, 90, 0, "aten::add"),
    }


def test_a_function_is_removed_with_all_that_it_calls():
    """Not with the gradients of its operators; its own code is the least of it."""
    graph = drawn(STEP)

    saves = hg.what_if(graph, hg.remove("train.py(4): loss")).saves_ns

    assert (graph.dur_ns, saves.expected_ns) == (550_000, 360_000)


def test_the_flame_graph_of_a_step():
    """Each stack once for a bound; the frames, then the operators in them."""
    path = drawn(STEP).critical_path()

    lines = [(row.stack, row.bound, row.dur_ns // 1_000) for row in path.flame().itertuples()]

    within = "train.py(9): step;train.py(4): loss"
    linear = f"{within};train.py(5): <listcomp>;torch/nn/functional.py(1): linear"
    back = "train.py(9): step;torch/_tensor.py(7): backward"
    assert lines == [
        (f"{linear};aten::mm", "host", 140),
        (f"{back};MmBackward0;mm2", "host", 130),
        (within, "untraced_code", 90),
        (f"{within};layers.py(2): norm;aten::add", "host", 70),
        (f"{back};MmBackward0", "host", 50),
        (linear, "untraced_code", 30),
        (f"{within};layers.py(2): norm", "untraced_code", 20),
        (back, "untraced_code", 10),
        (f"{within};train.py(5): <listcomp>", "untraced_code", 10),
    ]


def test_device_work_belongs_to_the_stack_of_its_launch():
    """Also where the thread of the launch has no frames, and runs for the main thread."""
    graph = drawn("""
        thread 1 |[step                                                            ]
        thread 1 | [loss                 ][back                    ][norm [sync @*]]
        thread 1 |  [aten::a [launch >a]]
        thread 2 |                          [node [launch >b]     ]
        stream 7 |                      [k1 <a    ][k2 <b                     ]
    """)
    flame = graph.critical_path().flame()

    found = of(graph, "own_ns")
    device = flame[flame["bound"] == "compute"]["stack"].tolist()

    assert device == [
        "train.py(9): step;torch/_tensor.py(7): backward;MmBackward0;k2",
        "train.py(9): step;train.py(4): loss;aten::a;k1",
    ]
    assert found == {"loss": (310,), "step": (280,), "norm": (40,)}


def test_a_range_outlasts_the_function_that_enters_it():
    """What runs in the range is in the caller, not in `__enter__`."""
    flame = (
        drawn("""
        thread 1 |[step                                         ]
        thread 1 |  [enter   ]        [norm            ]
        thread 1 |[mm]  {range                            }
        thread 1 |                      [add        ]
    """)
        .critical_path()
        .flame()
    )

    assert "train.py(9): step;## validation ##;layers.py(2): norm;aten::add" in set(flame["stack"])


def test_without_frames_there_are_no_functions_and_the_flame_graph_has_operators():
    graph = Trace.from_events(timeline("thread 1 |{train [aten::mm ][aten::add ]}")).compile()

    assert graph.functions().empty
    assert set(graph.critical_path().flame()["stack"]) == {
        "train",
        "train;aten::mm",
        "train;aten::add",
    }


def test_time_outside_all_functions_is_a_row_of_its_own():
    """A library calls an operator, and nothing calls the library."""
    graph = drawn("""
        thread 1 |[norm       ][linear       ]
        thread 1 | [mm       ]  [add        ]
    """)

    assert of(graph, "own_ns", "place") == {
        "norm": (120, "layers.py:2"),
        "(no function)": (140, ""),
    }


def _many(times_us: list[int], *around: tuple[str, int, int]) -> TraceGraph:
    """A step that calls functions one after another, each of one operator, some within others."""
    rows = [(0, sum(times_us) + 2, "train.py(9): step", EventKind.PYTHON)]
    rows += [(begin, time, name, EventKind.PYTHON) for name, begin, time in around]
    begin = 1
    for number, time in enumerate(times_us):
        rows += [
            (begin, time, f"f.py({number}): f{number}", EventKind.PYTHON),
            (begin, time, f"aten::op{number}", EventKind.OP),
        ]
        begin += time
    begins, durs, names, kinds = zip(*rows, strict=True)
    events = EventTable.of(
        ts_ns=1_000 * np.array(begins),
        dur_ns=1_000 * np.array(durs),
        kind=kinds,
        name=names,
        lane=[(1, 1)] * len(rows),
    )
    return Trace.from_events(events).compile()


def test_the_five_largest_functions_are_tried_and_not_those_around_all():
    """Nor one with less than a thousandth of the path."""
    few, many = _many([5_000, 4_994, 6]), _many([600, 500, 400, 300, 200, 100])

    assert worth_removing(few.functions()) == ["f.py(0): f0", "f.py(1): f1"]
    assert worth_removing(many.functions()) == [f"f.py({n}): f{n}" for n in range(5)]
    kinds = many.opportunities().query("kind == 'function'")
    assert kinds["target"].tolist() == [f"f.py({n}): f{n}" for n in range(5)]
    assert (kinds["saves_ns"] // 1_000).tolist() == [600, 500, 400, 300, 200]


def test_the_deepest_function_with_half_of_the_path_is_tried():
    """It calls six others, and does nothing itself."""
    graph = _many([100] * 6 + [300], ("train.py(4): loss", 1, 600))

    found = worth_removing(graph.functions())

    assert found == ["f.py(6): f6", *(f"f.py({n}): f{n}" for n in range(4)), "train.py(4): loss"]


FRAMED = programs(max_blocks=3).map(lambda program: _framed(simulate(program).events))


def _framed(events: EventTable) -> EventTable:
    """The events, of which every third name of an operator or range becomes a function."""
    of_host = np.isin(events.kind, (EventKind.OP, EventKind.ANNOTATION))
    chosen = np.unique(events.name[of_host])[::3].tolist()
    texts = [
        f"f.py({code}): f" if code in chosen else text
        for code, text in enumerate(events.symbols.texts)
    ]
    kind = np.where(of_host & np.isin(events.name, chosen), EventKind.PYTHON, events.kind)
    return replace(events, kind=kind.astype(np.int8), symbols=SymbolTable(tuple(texts)))


@given(FRAMED)
def test_own_times_add_up_and_are_at_most_inclusive(events):
    """So do the rows of the flame graph."""
    graph = Trace.from_events(events).compile()
    path, found = graph.critical_path(), graph.functions()

    assert path.flame()["dur_ns"].sum() == path.dur_ns
    if len(found):
        assert found["own_ns"].sum() == path.dur_ns
        assert (found["inclusive_ns"] >= found["own_ns"]).all()
        assert (found["inclusive_ns"] + found["backward_ns"] <= path.dur_ns).all()
        assert (found["backward_ns"] >= 0).all()


STACKS = sorted(CAPTURES.glob("*/*_stack.pt.trace.json.gz"))


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.name.partition(".")[0])
def test_what_a_program_calls_is_all_of_a_real_path(file):
    """The outermost function of the only thread has all; each stack is told once for a bound."""
    graph = hg.load(file, stacks=True).compile()
    path, found = graph.critical_path(), graph.functions()

    flame = path.flame()
    assert flame["dur_ns"].sum() == path.dur_ns == found["own_ns"].sum()
    assert not flame.duplicated(["stack", "bound"]).any()
    assert found["inclusive_ns"].max() == path.dur_ns


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(name for name in TRACES if not name.startswith("captures")))
def test_stacks_of_public_traces_add_up(name):
    """With the frames that some have: the outermost ones have what their threads have."""
    graph = hg.load(located(name), stacks=True).compile()
    path, found = graph.critical_path(), graph.functions()
    stacks, events = path.stacks, graph.dag.events
    is_root = (stacks.parent < 0) & (events.kind[stacks.event] == EventKind.PYTHON)
    outermost = np.unique(events.symbols.array[events.name[stacks.event[is_root]]])

    assert path.flame()["dur_ns"].sum() == path.dur_ns
    if len(found):
        assert found["own_ns"].sum() == path.dur_ns
        flame = path.flame().assign(top=lambda rows: rows["stack"].str.partition(";")[0])
        of_threads = flame.groupby("top")["dur_ns"].sum()
        known = found[found["frame"].isin(outermost)].set_index("frame")["inclusive_ns"]
        assert (known >= of_threads.reindex(known.index).fillna(0)).all()


SAMPLED = CAPTURES.parent / "sampled.pt.trace.json.gz"


def answers(graph):
    """The verdict, and what every question answers, as text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {"verdict": str(graph.verdict()), "document": graph.verdict().document()}
        for question in QUESTIONS:
            try:
                found[question] = graph.ask(question).to_csv()
            except HTAGraphError as error:
                found[question] = str(error)
    return found


def test_a_trace_without_its_samples_answers_as_if_they_were_not_read():
    """Byte for byte: nothing but frames comes of them."""
    document = json.loads(gzip.decompress(SAMPLED.read_bytes()))
    rest = {key: value for key, value in document.items() if key not in KEYS}
    recorded = {event["cat"] for event in document["traceEvents"] if "cat" in event}
    stripped = hg.load(json.dumps(rest).encode()).compile()
    ignored = hg.load(SAMPLED, categories=recorded).compile()

    assert len(hg.load(SAMPLED).compile().functions()) > 1
    assert answers(stripped) == answers(ignored)


PLANTED = [
    ("single/json", "parse_features", "json_ms"),
    ("single/backwardhook", "hook", "hook_ms"),
    ("features/pyexport", "__getitem__", "next_ms"),
]


@pytest.mark.parametrize(("name", "function", "planted"), PLANTED)
def test_a_planted_function_is_first_and_costs_what_its_script_measured(name, function, planted):
    """Within 10%, of three recorded steps; so does its removal."""
    truth = json.loads((CAPTURES / f"{name}_stack.truth.json").read_text())
    graph = hg.load(CAPTURES / f"{name}_stack.pt.trace.json.gz", stacks=True).compile()

    first = graph.functions().iloc[0]
    saved_ns = hg.what_if(graph, hg.remove(first["frame"])).saves_ns.expected_ns

    assert first["function"] == function
    for time_ns in (first["own_ns"], saved_ns):
        assert time_ns / 3e6 == pytest.approx(truth["mean_per_recorded_step"][planted], rel=0.10)


PAIRS = FOLDER.parent / "pairs" / "single"


@pytest.mark.skipif(not PAIRS.is_dir(), reason="these pairs are not here")
@pytest.mark.public
def test_planted_functions_of_pairs_are_among_the_first_three():
    """But one that is suspended while others run, so that it is on no stack."""
    ranks = {one.case: one.rank for one in all_removed(PAIRS)}

    assert len(ranks) >= 6
    assert {case for case, rank in ranks.items() if rank > 3} == {"async_microbatch"}
