"""Compiling, compiling again and tuning are told apart, and from running what they made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph import Trace
from htagraph.explain.topics import about
from htagraph.model.kinds import Cause, EventKind
from htagraph.synth import timeline

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
    dag = Trace.from_events(timeline(drawing, names=names)).compile().dag

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
