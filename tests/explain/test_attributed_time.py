"""Which cause the time of a drawn path is charged to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from htagraph import Trace
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import path_segments
from htagraph.explain.segments import segment_frame
from htagraph.model.frames import ATTRIBUTED_TIME
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.synth import timeline
from tests.drawn import drawn_dag, drawn_graph
from tests.synth.simulator import simulate
from tests.synth.strategies import programs


def attributed(drawing: str, frames: tuple[str, ...] = (), **options) -> dict[str, int]:
    """The time in us that is charged to each cause of a drawn trace; some events are frames."""
    events = timeline(drawing, **options)
    kind = np.where(np.isin(events.names(), frames), EventKind.PYTHON, events.kind)
    events = replace(events, kind=kind.astype(np.int8))
    path = Trace.from_events(events).compile().critical_path()
    by_cause = path.attributed_time.groupby("cause", sort=False)["dur_ns"].sum()
    assert by_cause.sum() == path.dur_ns
    return {str(cause): dur_ns // 1000 for cause, dur_ns in by_cause.items()}


def test_later_host_time_is_charged_to_a_wait_for_as_long_as_it_blocked():
    """Blocked for 15 us, the host could have run 15 us ahead; the other 5 us are the operator's."""
    assert attributed("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][sync               ]  [aten::add ][launch >b]
        stream 7 |     [kernel <a          ]                       [kernel <b      ]
    """) == {"CPU work": 13, "GPU compute": 38, "GPU synchronization": 15}


def test_reading_a_value_off_the_device_is_a_wait_as_a_whole():
    """Without `aten::item` there is no operator, no copy, and no wait for it."""
    assert attributed(
        """
        us       |0         10        20        30        40
        cpu 1    |[launch >a][aten::item [copy >c                 ]]
        stream 7 |     [kernel <a            ][Memcpy <c]
        """,
        names={"Memcpy": "Memcpy DtoH (Device -> Pageable)"},
    ) == {"CPU work": 5, "GPU compute": 23, "GPU synchronization": 22}


@pytest.mark.parametrize("operator", ["aten::nonzero", "aten::item"])
def test_reading_a_value_of_a_host_tensor_waits_for_nothing(operator):
    """No call below it waits: with a device the host sets the pace, without one it computes."""
    names = {"read": operator}

    assert attributed(
        """
        cpu 1    |[launch >a][read                         ][launch >b]
        stream 7 |     [k <a]                                    [k <b]
        """,
        names=names,
    ) == {"CPU work": 47, "GPU compute": 6}
    assert attributed("cpu 1    |[read                         ]", names=names) == {
        "CPU operators": 31
    }


def test_a_host_without_a_device_computes_calls_and_runs_code():
    """What is short is the price of calling; a gap, or an autograd function's time, is code."""
    assert attributed(
        """
        us       |0         10        20        30        40        50        60
        cpu 1    |[aten::mm                              ]    [a]    [a]    [a]
        """,
        names={"a": "aten::add"},
    ) == {"CPU operators": 40, "small operators": 21}
    assert attributed(
        """
        us       |0         10        20        30        40        50        60
        cpu 1    |[back                     [aten::mm               ]]     [aten::mm            ]
        """,
        names={"back": "MyFunctionBackward"},
    ) == {"Python code": 26, "CPU operators": 47, "small operators": 6}


def test_a_closure_that_the_optimizer_calls_is_no_optimizer():
    """As in Lightning, where a training step is one: what follows the backward pass is."""
    names = {
        "step": "Optimizer.step#Adam.step",
        "back": "autograd::engine::evaluate_function: MmBackward0",
    }
    assert attributed(
        """
        us       |0         10        20        30        40        50        60        70
        cpu 1    |{step                                                                   }
        cpu 1    | [aten::mm           ][back                   ] [aten::add_             ]
        """,
        names=names,
    ) == {"small operators": 1, "CPU operators": 21, "Python code": 25, "optimizer": 26}


def test_time_before_a_short_operator_is_the_operators_and_code_says_where_it_runs() -> None:
    """4 us before `aten::add` are its price of calling, a gap of 25 us is code of the user."""
    events = timeline(
        """
        cpu 1    |[aten::mm                ]    [add]                         [aten::mm         ]
        """,
        names={"add": "aten::add"},
    )
    found = Trace.from_events(events).compile().critical_path().attributed_time

    assert found[["name", "cause", "place", "dur_ns"]].to_numpy().tolist() == [
        ["aten::mm", "CPU operators", "", 26_000],
        ["aten::add", "small operators", "", 4_000],
        ["aten::add", "small operators", "", 5_000],
        ["(host gap)", "Python code", "after aten::add", 25_000],
        ["aten::mm", "small operators", "", 19_000],
    ]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("dynamo", {"compilation": 57, "GPU synchronization": 10}),
        ("save_checkpoint", {"checkpointing": 28, "GPU compute": 29, "GPU synchronization": 10}),
    ],
)
def test_what_runs_on_the_device_while_code_is_compiled_is_compilation(
    name: str, found: dict[str, int]
) -> None:
    """It tries kernels, and waits for them; what a checkpoint waits for is work of the step."""
    assert (
        attributed(
            """
            cpu 1    |[range      [launch >a][sync                    ]       ][aten::mm]
            stream 7 |                 [k <a                       ]
            """,
            names={"range": name},
        )
        == found
    )


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Optimizer.step#Adam.step", "optimizer"),
        ("optimizer", "optimizer"),
        ("fx_codegen_and_compile (dynamo_timed)", "compilation"),
        ("inductor_compile", "compilation"),
        ("save_checkpoint", "checkpointing"),
        ("gc.collect", "garbage collection"),
        ("data loading", "data loading"),
        ("dataloader", "data loading"),
        ("fetch_batch", "data loading"),
        ("## forward ##", "Python code"),
        ("checkpoint", "Python code"),
    ],
)
def test_a_named_range_says_what_its_time_is_for(name, cause):
    """All that runs in it; "checkpoint" alone may be recomputation of activations."""
    assert attributed(
        """
        cpu 1    |{range                                   }
        cpu 1    | [aten::mm                ]
        """,
        names={"range": name},
    ) == ({cause: 42} if cause != "Python code" else {"small operators": 16, "CPU operators": 26})


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ("<built-in function collect>", "garbage collection"),
        ("torch/serialization.py(940): save", "checkpointing"),
        ("/usr/lib/python3/dist-packages/torch/serialization.py(940): save", "checkpointing"),
        ("torch/_dynamo/convert_frame.py(600): __call__", "compilation"),
        ("torch/utils/checkpoint.py(400): checkpoint", "Python code"),
    ],
)
def test_a_python_frame_says_what_the_code_below_it_is_for(frame, cause):
    """With stacks; what runs in the gap besides is code of its own. With a device, too."""
    rest = {"CPU operators": 50}

    assert attributed(
        """
        cpu 1    |[aten::mm               ]  [frame              ]  [aten::mm               ]
        """,
        frames=(frame,),
        names={"frame": frame},
    ) == rest | ({cause: 21, "Python code": 4} if cause != "Python code" else {"Python code": 25})
    assert attributed(
        """
        cpu 1    |[aten::mm               ]  [frame              ]  [launch >a]
        stream 7 |                                                     [k <a  ]
        """,
        frames=(frame,),
        names={"frame": frame},
    ) == {"CPU work": 32, "GPU compute": 8} | (
        {cause: 21} if cause != "Python code" else {"CPU work": 53}
    )


def test_a_copy_that_blocks_the_host_is_charged_its_own_time():
    """A copy from pageable memory blocks; for as long, the host could have gone ahead."""
    assert attributed(
        """
        us       |0         10        20        30
        cpu 1    |[copy >c          ]  [aten::mm]
        stream 7 |   [Memcpy <c ]
        """,
        names={"Memcpy": "Memcpy HtoD (Pageable -> Device)"},
    ) == {"CPU work": 4, "synchronous copies": 27}


def test_data_loading_keeps_what_it_took_also_after_a_wait():
    """The loader takes its time without the wait, too; what to fix first is the loader."""
    assert attributed(
        """
        us       |0         10        20        30        40
        cpu 1    |[launch >a][sync        ][load           ]
        stream 7 |     [kernel <a    ]
        """,
        names={"load": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"},
    ) == {"CPU work": 5, "GPU compute": 15, "GPU synchronization": 5, "data loading": 17}


def test_allocating_device_memory_is_no_ordinary_host_work():
    """`cudaMalloc` on the path means that the cache of the allocator had nothing to give."""
    assert attributed("""
        cpu 1    |[aten::empty [cudaMalloc  ]][launch >a]
        stream 7 |                                  [kernel <a ]
    """) == {"CPU work": 20, "GPU memory allocation": 14, "GPU compute": 12}


def test_a_launch_that_takes_milliseconds_loads_code():
    """A first launch loads its module; that is no cost of launching."""
    assert attributed(
        """
        cpu 1    |[launch >a][aten::mm]
        stream 7 |    [k <a]
        """,
        us_per_column=1000,
    ) == {"one-time setup": 11_000, "CPU work": 10_000}


def test_what_recurs_is_no_setup():
    """The kernel was launched before, by another operator, and that took as long: it is loaded."""
    assert attributed(
        """
        stream 7 |    [k <a]                      [k <b]
        cpu 1    |[launch >a][aten::mm][relu [launch >b]][aten::mm]
        """,
        us_per_column=1000,
    ) == {"CPU work": 49_000}


def test_a_first_launch_is_long_only_once():
    """The second launch of the kernel takes less than half of that."""
    assert attributed(
        """
        cpu 1    |[launch             >a][aten::mm][launch >b][aten::mm]
        stream 7 |           [k <a]                    [k <b]
        """,
        us_per_column=1000,
    ) == {"one-time setup": 23_000, "CPU work": 31_000}


@pytest.mark.parametrize(("us_per_column", "cause"), [(500, "CPU work"), (501, "one-time setup")])
def test_calls_of_up_to_5_ms_are_not_examined(us_per_column: int, cause: str) -> None:
    """The first launch takes 10 columns: 5.00 ms or 5.01 ms."""
    found = attributed("cpu 1    |[graph >a]\nstream 7 |  [k <a]", us_per_column=us_per_column)

    assert found == {cause: 10 * us_per_column}


@pytest.mark.parametrize(("first", "cause"), [(" " * 7, "CPU work"), (" " * 16, "one-time setup")])
def test_setup_takes_more_than_twice_as_long_as_later_calls(first: str, cause: str) -> None:
    """Later launches take 11 ms, the first one 18 ms or 27 ms."""
    gap = " " * len(first)
    found = attributed(
        f"""
        cpu 1    |[launch{first} >a][launch >b][launch >c]
        stream 7 |{gap}     [k <a]       [k <b]      [k <c]
        """,
        us_per_column=1000,
    )

    assert found.get("one-time setup", 0) == (len(first) + 11) * 1000 * (cause == "one-time setup")


@pytest.mark.parametrize(
    ("busy", "cause"), [(" " * 28, "GPU synchronization"), (" " * 20, "one-time setup")]
)
def test_a_device_that_blocks_a_launch_is_busy_for_nine_tenths_of_it(busy: str, cause: str) -> None:
    """The second launch takes 31 ms, in which the device works for 30 ms or 22 ms."""
    found = attributed(
        f"""
        cpu 1    |[launch >a][cudaGraphLaunch >b           ][aten::mm]
        stream 7 |     [k <a{busy}   ]
        stream 9 |                                       [g <b]
        """,
        us_per_column=1000,
    )

    assert found["one-time setup"] == (11_000 if cause == "GPU synchronization" else 42_000)


@pytest.mark.parametrize(
    ("drawing", "cause"),
    [
        ("cpu 1    |[aten::mm          ]", "CPU operators"),
        ("cpu 1    |[aten::mm         ]", "small operators"),
    ],
)
def test_an_operator_below_20_us_is_short(drawing: str, cause: str) -> None:
    """It takes 20 us or 19 us."""
    assert list(attributed(drawing)) == [cause]


def test_a_launch_that_is_held_up_by_a_busy_device_waits_for_it():
    """A launch of a new kernel that returns when the device has done the rest loads nothing."""
    assert attributed(
        """
        stream 9 |                                       [g <b]
        cpu 1    |[launch >a][cudaGraphLaunch >b           ][aten::mm]
        stream 7 |  [k <a                                ]
        """,
        us_per_column=1000,
    ) == {"one-time setup": 11_000, "GPU synchronization": 31_000, "CPU work": 10_000}


def test_loading_code_is_setup_each_time():
    """Each call loads another module, and so does the launch, until its kernel starts."""
    assert attributed(
        """
        cpu 1    |[cuModuleLoadData][cuModuleLoadData][launch >a]
        stream 7 |                                         [k <a     ]
        """,
        us_per_column=1000,
    ) == {"one-time setup": 41_000, "GPU compute": 11_000}


def _full_queue(copy_name: str) -> dict[str, int]:
    """A thousand kernels wait to start; a copy on another stream is enqueued, and one starts."""
    launches = "".join(f"[launch >{i:04d}]" for i in range(1_001))
    kernels = "".join(f"[k <{i:04d}]" for i in range(1_001))
    wait = " " * len(launches)
    return attributed(
        f"""
        cpu 1    |{launches}[copy >c {" " * 90}][aten::mm {wait}]
        stream 7 |{wait}          {kernels}
        stream 9 |{wait}  {" " * 80}[Memcpy <c]
        """,
        names={"Memcpy": copy_name},
    )


def test_a_waiting_copy_is_synchronous_before_it_is_a_full_queue():
    """The call waits for its own copy from pageable memory; room in the queue is not enough."""
    found = _full_queue("Memcpy HtoD (Pageable -> Device)")

    assert (found["synchronous copies"], found.get("full launch queue")) == (100, None)


def test_a_copy_that_does_not_wait_may_meet_a_full_queue():
    """A copy from pinned memory needs nothing but room."""
    found = _full_queue("Memcpy HtoD (Pinned -> Device)")

    assert (found["full launch queue"], found.get("synchronous copies")) == (100, None)


def test_a_launch_that_work_from_before_the_capture_holds_up_met_a_full_queue():
    """A thousand kernels without a launch wait behind a long one; no new kernel is loaded."""
    kernels = "[k]" * 1_000
    assert attributed(
        f"""
        cpu 1    |[launch >a][aten::mm {" " * 3_000}]
        stream 7 |[long      ]{kernels}
        stream 9 |            [new <a]
        """,
        us_per_column=1000,
    ) == {"full launch queue": 11_000, "CPU work": 3_011_000}


def test_an_empty_trace_has_no_attributed_time():
    """The answer has its schema, and no rows."""
    found = drawn_graph("").critical_path().attributed_time

    assert (list(found.columns), len(found)) == (list(ATTRIBUTED_TIME.columns), 0)


def test_a_window_of_an_empty_trace_is_unexplained() -> None:
    """Nothing is recorded: no cause, no place, and no step."""
    dag = drawn_dag("")
    segments = path_segments(dag, [Window(0, 30_000, "window")])
    found = attributed_time(dag, segment_frame(dag, segments))

    assert found[["cause", "place", "step", "event", "dur_ns"]].to_numpy().tolist() == [
        ["unknown waits", "", "", -1, 30_000]
    ]


@given(program=programs())
def test_attributed_time_adds_up_to_the_window_of_every_program(program):
    """Every nanosecond of the path is charged to exactly one cause."""
    path = Trace.from_events(simulate(program).events).compile().critical_path()

    found = path.attributed_time

    assert (found["dur_ns"] > 0).all()
    assert int(found["dur_ns"].sum()) == path.dur_ns


def test_a_wait_for_what_is_not_recorded_is_a_cause_of_its_own():
    """The host does not set the pace while it waits, even if nothing says for what."""
    assert attributed("""
        cpu 1    |[launch >a][op      ][sync                                            ][op ]
        stream 7 |     [k1 <a ]
    """) == {"CPU work": 26, "unrecorded waits": 50}


def test_a_short_synchronization_that_need_not_wait_is_host_time():
    """It returns at once, as everything had ended before."""
    assert attributed("""
        cpu 1    |[launch >a][op      ][sync ][op ]
        stream 7 |     [k1 <a ]
    """) == {"CPU work": 33}


def test_frames_say_nothing_of_time_on_the_device() -> None:
    """The device is busy all the while that the host runs Python."""
    assert attributed(
        """
        stream 7 |[k                    ]
        cpu 1    |  [frame         ]
        """,
        frames=("frame",),
    ) == {"GPU compute": 23}
