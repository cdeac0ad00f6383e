"""What is told around a path: odd steps, counters, roofs, replays."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph import Trace, synth
from htagraph.explain.counter_tracks import counter_tracks, roof_arguments
from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.explain.segment_pieces import meanwhile
from htagraph.explain.self_time import ReplayTime, replay_time
from htagraph.explain.topics import about
from htagraph.findings.window_bounds import find_bounds
from htagraph.lookup.steady_steps import steady_steps
from htagraph.model.kinds import Cause, EventKind
from htagraph.model.samples import SampleTable, Series
from htagraph.model.window import Window
from htagraph.synth import timeline
from tests.drawn import drawn_dag, drawn_graph
from tests.queries.gridded import gridded
from tests.queries.recorded_shapes import Op, recorded

RANGE = """
    cpu 1    |[range               ][aten::mm                               ]
"""


def causes(drawing: str, frames: tuple[str, ...] = (), **names: str) -> dict[str, int]:
    """The time in us that is charged to each cause; some events are Python frames."""
    events = timeline(drawing, names=names)
    kind = np.where(np.isin(events.names(), frames), EventKind.PYTHON, events.kind)
    events = replace(events, kind=kind.astype(np.int8))
    time = Trace.from_events(events).compile().window("trace").critical_path().attributed_time
    by_cause = time.groupby("cause", sort=False)["dur_ns"].sum() // 1000
    return {str(cause): int(dur_us) for cause, dur_us in by_cause.items()}


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("dynamo", "compilation"),
        ("_compile.compile_inner (dynamo_timed)", "compilation"),
        ("_compile.<locals>.compile_inner", "compilation"),
        ("entire_frame_compile", "compilation"),
        ("backend_compile", "compilation"),
        ("compile_fx.<locals>.fw_compiler_base", "compilation"),
        ("fx_graph_cache_lookup", "compilation"),
        ("cudagraphify", "compilation"),
        ("cudaGraphInstantiate", "compilation"),
        ("CachingAutotuner.benchmark_all_configs (dynamo_timed)", "autotuning"),
        ("CachingAutotuner.coordinate_descent_tuning", "autotuning"),
        ("benchmark_fused_nodes", "autotuning"),
    ],
)
def test_a_range_says_what_is_compiled_or_tuned(name: str, cause: str) -> None:
    """Of Dynamo, Inductor, captures of graphs, and Triton."""
    drawing = (
        RANGE if "cudaGraph" in name else RANGE.replace("[range", "{range", 1).replace("]", "}", 1)
    )

    assert causes(drawing, range=name)[cause] == 22


@pytest.mark.parametrize(
    "name",
    [
        "TorchDynamo Cache Lookup",
        "Torch-Compiled Region: 0/1",
        "## Call CompiledFxGraph f3a ##",
        "CompiledFunction",
        "AOTDispatcher Runtime Wrapper Prologue",
        "cudaGraphLaunch",
    ],
)
def test_what_runs_compiled_code_compiles_nothing(name: str) -> None:
    """Guards are looked up, and graphs replayed, in each step."""
    found = causes(RANGE, range=name)

    assert not {"compilation", "recompilation", "autotuning"} & set(found)


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ("torch/_dynamo/convert_frame.py(600): __call__", "compilation"),
        ("torch/_inductor/compile_fx.py(900): compile_fx", "compilation"),
        ("torch/_inductor/cudagraph_trees.py(1): record_function", "compilation"),
        ("triton/runtime/jit.py(500): _do_compile", "compilation"),
        ("triton/runtime/autotuner.py(150): _bench", "autotuning"),
        ("torch/_inductor/runtime/triton_heuristics.py(9): autotune_to_one_config", "autotuning"),
        ("torch/_inductor/cudagraph_trees.py(1): deferred_cudagraphify", ""),
        ("torch/compiler/__init__.py(105): is_compiling", ""),
        ("torch/_dynamo/eval_frame.py(700): compile_wrapper", ""),
        ("flashinfer/autotuner.py(60): choose_one", ""),
    ],
)
def test_a_python_frame_says_so_too(frame: str, cause: str) -> None:
    """Frames that are there in each step say nothing."""
    drawing = """
    cpu 1    |[aten::mm               ]  [frame              ]  [aten::mm               ]
    """
    found = causes(drawing, (frame,), frame=frame)

    assert found == {"CPU operators": 50} | (
        {cause: 21, "Python code": 4} if cause else {"Python code": 25}
    )


def test_what_comes_back_after_the_first_step_is_recompilation() -> None:
    """Dynamo's own numbers were not recorded: 12 us in the second step."""
    assert causes(
        """
        cpu 1    |{ProfilerStep#0               }{ProfilerStep#1                       }
        cpu 1    |[aten::mm                     ][dynamo    ][aten::mm                 ]
        """
    ) == {"CPU operators": 58, "recompilation": 12}


def test_what_is_compiled_in_the_first_step_only_is_compilation() -> None:
    """The second step runs what the first one made."""
    assert causes(
        """
        cpu 1    |{ProfilerStep#0                 }{ProfilerStep#1           }
        cpu 1    |[dynamo    ][aten::mm           ][aten::mm                 ]
        """
    ) == {"compilation": 12, "CPU operators": 48}


def test_what_is_compiled_in_several_steps_is_recompilation_in_all() -> None:
    """Also in the first of them."""
    found = causes(
        """
        cpu 1    |{ProfilerStep#0                 }{ProfilerStep#1                     }
        cpu 1    |[dynamo    ][aten::mm           ][dynamo    ][aten::mm               ]
        """
    )
    assert found == {"recompilation": 24, "CPU operators": 46}


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        ("0/0", "compilation"),
        ("3/0", "compilation"),
        ("3/1", "recompilation"),
        ("!1/3/2", "recompilation"),
    ],
)
def test_dynamo_says_how_often_a_frame_was_compiled(number: str, cause: str) -> None:
    """Whatever the step: its numbers are of the frame, and of the time."""
    found = causes(
        """
        cpu 1    |{ProfilerStep#0     }{ProfilerStep#1                            }
        cpu 1    |[aten::mm           ][dynamo              ][aten::mm            ]
        cpu 1    |                       {id_         }
        """,
        id_=f"dynamo_data: compile_id={number}",
    )
    assert found[cause] == 22


def test_a_convolution_that_measures_its_kernels_tunes_them() -> None:
    """`cudnn.benchmark`: it asks events for elapsed times. The kernels that it tries count, too."""
    tuning = """
    cpu 1    |[conv [launch >a]                       [elapsed]][aten::relu [launch >b]]
    stream 7 |          [k <a                     ]                          [m <b     ]
    """
    names = {"conv": "aten::cudnn_convolution"}

    assert causes(tuning, **names, elapsed="cudaEventElapsedTime")["autotuning"] > 30
    assert "autotuning" not in causes(tuning, **names, elapsed="cudaEventRecord")


def test_a_repair_finds_what_its_cause_is_about() -> None:
    """Ranges by name, each either compiled for the first time or again."""
    drawing = """
        cpu 1    |{ProfilerStep#0               }{ProfilerStep#1                     }
        cpu 1    |[one     ][aten::mm           ][two       ][aten::mm               ]
        cpu 1    | {id_0 }                        {id_1  }
    """
    names = {"one": "dynamo", "two": "backend_compile"}
    names |= {f"id_{number}": f"x_data: compile_id=0/{number}" for number in (0, 1)}
    dag = drawn_graph(drawing, names=names).dag

    assert dag.events.names(np.flatnonzero(about(dag, Cause.COMPILATION))).tolist() == ["dynamo"]
    again = np.flatnonzero(about(dag, Cause.RECOMPILATION))
    assert dag.events.names(again).tolist() == ["backend_compile"]


def test_what_is_compiled_before_the_first_step_is_compilation() -> None:
    """Also if several steps compile: nothing was made before."""
    found = causes(
        """
        cpu 1    |            {ProfilerStep#0      }{ProfilerStep#1                      }
        cpu 1    |[dynamo    ][dynamo    ][aten::mm][dynamo      ][aten::mm              ]
        """
    )
    assert found == {
        "compilation": 12,
        "recompilation": 26,
        "small operators": 10,
        "CPU operators": 24,
    }


def test_a_topic_is_about_ranges_and_frames_of_the_host() -> None:
    """Of three events with such names, the third is what the device ran meanwhile."""
    frame = "torch/serialization.py(940): save"
    events = timeline(
        """
        cpu 1    |{range             }
        cpu 1    |  [frame    ]
        stream 7 |{projected         }
        """,
        names={"range": "save_checkpoint", "frame": frame, "projected": "save_checkpoint"},
    )
    kind = np.where(events.names() == frame, EventKind.PYTHON, events.kind).astype(np.int8)
    dag = Trace.from_events(replace(events, kind=kind)).compile().dag

    assert np.flatnonzero(about(dag, Cause.CHECKPOINTING)).tolist() == [0, 1]


def trained(*rows: tuple[str, int, int, int, int]) -> dict[str, int]:
    """Time in us by cause of operators: name, start, length, sequence number, forward thread."""
    events = [
        {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "name": name, "ts": start, "dur": dur}
        | {"args": {"Sequence number": number, "Fwd thread id": thread} if number else {}}
        for name, start, dur, number, thread in rows
    ]
    graph = hg.load(json.dumps({"traceEvents": events}).encode()).compile()
    time = graph.window("trace").critical_path().attributed_time
    found = time.groupby("cause", observed=True)["dur_ns"].sum() // 1000
    return {str(cause): int(dur_us) for cause, dur_us in found.items() if dur_us}


EVALUATES = "autograd::engine::evaluate_function: ReluBackward0"
FORWARD = (("aten::linear", 0, 100, 3, 0), ("aten::relu", 100, 100, 4, 0))
BACKWARD = ((EVALUATES, 200, 500, 4, 1), ("ReluBackward0", 210, 480, 4, 1))


def test_a_backward_function_that_first_runs_the_forward_pass_recomputes() -> None:
    """From the start of the function to the end of the last operator that repeats: 330 us.

    100 us of copying the random state in between belong to it, 140 us of its own work do not.
    """
    checkpointed = (
        ("aten::linear", 220, 100, 9, 0),
        ("aten::copy_", 330, 100, 0, 0),
        ("aten::linear", 430, 50, 10, 0),
        ("aten::relu", 480, 60, 11, 0),
        ("aten::threshold_backward", 540, 140, 0, 0),
    )

    assert trained(*FORWARD, *BACKWARD, *checkpointed) == {
        "CPU operators": 340,
        "recomputation": 330,
        "small operators": 10 + 10 + 10,
    }


@pytest.mark.parametrize(("n_checked", "anomaly_us"), [(1, 50 + 60), (0, 0)])
def test_gradients_searched_for_nan_show_that_anomaly_detection_is_on(n_checked, anomaly_us):
    """One of four functions. Then operators that record gradients first format the stack: 50 us."""
    rows = [("aten::linear", 0, 100, 3, 0), ("aten::addmm", 50, 50, 0, 0)]
    for number in range(4):
        at = 100 + 100 * number
        rows += [(EVALUATES, at, 100, 3, 1), ("ReluBackward0", at, 40, 3, 1)]
        if number < n_checked:
            rows += [("aten::isnan", at + 40, 40, 0, 0), ("aten::item", at + 80, 20, 0, 0)]

    assert trained(*rows).get("anomaly detection", 0) == anomaly_us


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("train.py(3): user", {"compilation": 12, "small operators": 58}),
        ("torch/_dynamo/convert_frame.py(9): next", {"recompilation": 30, "small operators": 40}),
    ],
)
def test_frames_that_compile_in_several_steps_compile_again(
    second: str, found: dict[str, int]
) -> None:
    """Code of the user in the second step, after a compilation in the first, compiles nothing."""
    first = "torch/_dynamo/convert_frame.py(600): __call__"
    drawing = """
        cpu 1    |{ProfilerStep#0                 }{ProfilerStep#1                     }
        cpu 1    |[first     ]      [aten::mm    ] [second          ][aten::mm         ]
    """
    assert causes(drawing, (first, second), first=first, second=second) == found


def reasons(drawing: str) -> list[str]:
    """The reason of each step of a drawing."""
    dag = drawn_dag(drawing)
    return odd_step_reasons(dag, steady_steps(dag))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("[a][b][c]      ", "3 events more than usual (+1 a, +1 b, +1 c)"),
        ("[d][c][b][a]   ", "4 events more than usual (+1 a, +1 b, +1 c, …)"),
        ("[b][a][b]      ", "3 events more than usual (+2 b, +1 a)"),
    ],
)
def test_up_to_three_names_say_what_a_step_did_more_of(more: str, reason: str) -> None:
    """The most frequent first, then by name; no step is longer than another."""
    step, usual = "{execute_a " + more + "}", "{execute_a " + " " * 15 + "}"

    assert reasons(f"cpu 1 |{usual}{step}{usual}{usual}") == ["", reason, "", ""]


def test_a_step_may_do_other_things_instead() -> None:
    """It runs `b` where the others run `a`."""
    usual = "{execute_a  [a   ] }"

    assert reasons(f"cpu 1 |{usual}{usual}{usual.replace('a   ', 'b   ')}{usual}") == [
        *("", ""),
        "1 event more and 1 event fewer than usual (-1 a, +1 b)",
        "",
    ]


def test_a_name_that_accounts_for_half_of_the_difference_is_the_reason_alone() -> None:
    """Of 20 us, `load` took 10 more, `a` 6 and `b` 4."""
    assert reasons("""
        cpu 1 |[load          ][a       ][b     ] [load][a ][b ] [load][a ][b ] [load][a ][b ]
        cpu 1 |{execute_a                       } {execute_a   } {execute_a   } {execute_a   }
    """) == ["2.33x as long (+10.0 us load)", "", "", ""]


def test_two_names_are_the_reason_if_none_accounts_for_half() -> None:
    """Of 12 us, `a` took 5 more, `b` 4 and `c` 3."""
    usual, step = "{execute_a [a][b][c]}", "{execute_a [a     ][b    ][c   ]}"

    assert reasons(f"cpu 1 |{usual}{step}{usual}{usual}") == [
        *("", "57% longer (+5.00 us a, +4.00 us b)"),
        *("", ""),
    ]


def test_a_shorter_step_says_what_took_it_less() -> None:
    """`a` takes 9 us instead of 15, and code that no event covers 2 instead of 3."""
    assert reasons("""
        cpu 1 |[a            ]   [a      ]  [a            ]   [a            ]
        cpu 1 |{execute_a       }{execute_a}{execute_a       }{execute_a       }
    """) == ["", "39% shorter (-6.00 us a)", "", ""]


def test_if_the_last_step_is_the_usual_one_the_nearest_to_it_is_compared() -> None:
    """No step follows the last one, of 14 us; the fourth takes 15 us, and the first 30."""
    steps = "".join("{execute_a".ljust(length - 1) + "}" for length in (30, 12, 16, 15, 14))

    assert reasons(f"cpu 1 |{steps}") == [
        "2x as long (+15.0 us untraced code)",
        *("", "", "", ""),
    ]


NAMES = {
    "up7": "Memcpy HtoD (Pinned -> Device)",
    "up9": "Memcpy HtoD (Pageable -> Device)",
    "down": "Memcpy DtoH (Device -> Pinned)",
}
DRAWING = """
    cpu 1    |[L >k]
    stream 7 |   [k <k ][up7    ]
    stream 9 |            [up9    ]  [down]
"""


def test_streams_that_copy_in_one_direction_are_also_counted_together() -> None:
    """Two streams copy to the device: 1 GB/s, then both, then 2 GB/s; one copies back."""
    events = synth.timeline(
        DRAWING,
        names=NAMES,
        columns={"memory_bandwidth": {"up7": 1.0, "up9": 2.0, "down": 4.0}},
    )
    tracks = counter_tracks(Trace.from_events(events).compile().dag)
    found = {(one.name, one.stream): one.value.tolist() for one in tracks}
    assert found == {
        ("queue length", 7): [1, 0],
        ("bandwidth, Memcpy DtoH", 9): [4],
        ("bandwidth, Memcpy HtoD", 7): [1, 0],
        ("bandwidth, Memcpy HtoD", 9): [2, 0],
        ("bandwidth, Memcpy HtoD", -1): [1, 3, 2, 0],
    }


def test_the_estimate_of_sm_activity_is_a_track_of_the_device() -> None:
    """5 blocks on 4 multiprocessors: all of them for 4 us, one for 4 us, none."""
    dag = gridded("cpu 1    |[op          ]\nstream 7 | [k     ]", k=(5, 512))
    track = next(one for one in counter_tracks(dag) if one.unit == "%")
    assert (track.name, track.device) == ("SM activity (estimate)", 0)
    assert (track.ts_ns.tolist(), track.value.tolist()) == ([1_000, 5_000, 9_000], [100, 25, 0])


def test_there_is_no_track_of_what_is_not_known() -> None:
    """Half of the time of kernels is without a grid."""
    dag = gridded("stream 7 |[k     ][other ]", k=(5, 512))
    assert not [one for one in counter_tracks(dag) if one.unit == "%"]


def test_samples_are_tracks_of_their_device_that_say_how_uncertain_times_are() -> None:
    """Each value holds half way to its neighbours, from the start of the trace to its end."""
    events = synth.timeline("cpu 1 |[aten::mm          ]")
    series = Series("power.draw", "W", 0, "nvidia-smi", 1_500_000_000)
    samples = SampleTable.of([(series, [-8_000, 4_000, 16_000], [100.0, 200.0, 300.0])])
    (track,) = counter_tracks(Trace.from_events(replace(events, samples=samples)).compile().dag)

    assert (track.name, track.unit) == ("power.draw (nvidia-smi, +-1.50 s)", "W")
    assert (track.device, track.stream) == (0, -1)
    assert track.ts_ns.tolist() == [0, 10_000]
    assert track.value.tolist() == [200.0, 300.0]


_PRODUCT = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("fill", 10), ("gemm", 190)])
"""137.4 GFLOP in 200 us."""
_ADDED = Op("aten::add", [[8192, 8192], [8192, 8192]], [("add", 240)])
"""402.7 MB: 120.2 us at memory bandwidth."""
_OWN = Op("mylib::attention", [[4096, 4096]], [("attention", 100)])


def test_all_kernels_of_a_call_and_the_call_have_its_rates():
    """The fill belongs to the product; an operator without a model has nothing."""
    dag = recorded(_PRODUCT, _ADDED, _OWN).dag
    found = {
        name: dict(zip(dag.events.names(event).tolist(), value.tolist(), strict=True))
        for name, (event, value) in roof_arguments(dag).items()
    }

    assert found == {
        "roof_tflops_per_s": {"aten::mm": 687.2, "fill": 687.2, "gemm": 687.2},
        "roof_gb_per_s": {
            "aten::mm": 503.3,
            "fill": 503.3,
            "gemm": 503.3,
            "aten::add": 1677.7,
            "add": 1677.7,
        },
        "roof_share": {
            "aten::mm": 0.695,
            "fill": 0.695,
            "gemm": 0.695,
            "aten::add": 0.501,
            "add": 0.501,
        },
        "roof_limit": {
            "aten::mm": "compute",
            "fill": "compute",
            "gemm": "compute",
            "aten::add": "memory",
            "add": "memory",
        },
    }


def test_an_unknown_device_has_none():
    assert roof_arguments(recorded(_PRODUCT, device=None).dag) == {}


LATE = """
    us       |0         10        20        30        40        50
    cpu 1    |[graph >a]                    [graph >b]
    stream 7 |  [k <a]  [m <a]                    [k <b]  [m <b]
"""
"""Each replay takes 14 us, 2 of them between its nodes; the second is called 14 us too late."""


def found_in(drawing: str) -> ReplayTime:
    dag = drawn_dag(drawing)
    return replay_time(dag, dag.span)


def test_time_is_split_into_replays_gaps_in_them_and_idle_time_between() -> None:
    """By hand; before the first replay the device is idle for 2 us."""
    found = found_in(LATE)

    assert (found.n_replays, found.window_ns) == (2, 50_000)
    assert (found.inside_ns, found.gap_ns) == (28_000, 4_000)
    assert (found.idle_ns, found.late_ns) == (22_000, 14_000)


def test_work_beside_the_replays_is_neither_gap_nor_idle() -> None:
    """A copy fills the gap of the first replay and most of the time after it."""
    found = found_in(LATE + "    stream 9 |        [copy                  ]\n")

    assert (found.gap_ns, found.idle_ns) == (2_000, 6_000)


def test_of_a_window_only_the_part_inside_counts() -> None:
    """The second replay's second node alone."""
    dag = drawn_dag(LATE)
    start_ns = dag.span.start_ns
    window = Window(start_ns + 46_000, start_ns + 49_000, "part")

    assert replay_time(dag, window) == ReplayTime(1, 3_000, 3_000, 0, 0, 0)


def test_without_replays_there_is_no_such_time() -> None:
    """Launched one by one."""
    assert found_in("cpu 1 |[launch >a]\nstream 7 |   [k <a]") == ReplayTime()


def test_idle_time_that_no_launch_ends_is_not_late() -> None:
    """After the second replay the device is idle for 20 us more."""
    dag = drawn_dag(LATE)
    found = replay_time(dag, Window(0, 70_000, "longer"))

    assert (found.idle_ns, found.late_ns) == (42_000, 14_000)


_US = 1_000
REQUEST = """
    cpu 1 |{request                                                     }
    cpu 2 |              [aten::sort                      ][aten::add]
"""


def evidence(drawing: str) -> str:
    """The first evidence of the first finding."""
    path = drawn_graph(drawing).critical_path()
    return find_bounds(path).findings[0].evidence[0].label


def ran(drawing: str, since_us: int, until_us: int) -> str:
    """What another thread than the first ran in a stretch of time."""
    dag = drawn_dag(drawing)
    lane = np.array([dag.events.lane[dag.events.ts_ns.argmin()]], np.int64)
    (found,) = meanwhile(dag, lane, np.array([since_us * _US]), np.array([until_us * _US]))
    return str(found)


def test_recorded_work_of_another_thread_is_no_unrecorded_code():
    """One request shows no recurrence, so it is open who waited for whom."""
    assert evidence(REQUEST) == "code or a wait in request, while thread 2 ran aten::sort"


def test_code_while_no_other_thread_works_is_unrecorded():
    """The other thread ran before."""
    drawing = """
        cpu 1 |[aten::mm        ]{request                                   }
        cpu 2 |    [aten::sort ]
    """
    assert evidence(drawing) == "untraced code in request"


@pytest.mark.parametrize(("until_us", "text"), [(27, "thread 2 ran work"), (28, "")])
def test_another_thread_ran_meanwhile_if_it_did_for_most_of_the_time(until_us, text):
    """Its operator takes 14 us."""
    drawing = """
        cpu 1 |[a]                          [b]
        cpu 2 |    [work        ]
    """
    assert ran(drawing, 0, until_us) == text


def test_of_several_threads_the_busiest_is_named_with_what_took_it_longest():
    """Not by its longest operator, and without what is inside of operators."""
    drawing = """
        cpu 1 |[a]                              [b]
        cpu 2 |    [long           ]
        cpu 3 |    [x    ][other    ][x    ][x    ]
        cpu 3 |            [inner  ]
    """
    assert ran(drawing, 3, 33) == "thread 3 ran x"


def test_a_range_of_another_thread_is_no_work():
    """It may wait, too."""
    drawing = """
        cpu 1 |[a]                          [b]
        cpu 2 |    {range                }
    """
    assert ran(drawing, 3, 29) == ""


def test_an_operator_that_still_runs_was_not_waited_for():
    """It may itself be what waits."""
    drawing = """
        cpu 1 |[a]                          [b]
        cpu 2 | [work                         ]
    """
    assert ran(drawing, 3, 29) == ""
