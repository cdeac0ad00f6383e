"""Holes: stretches in which launches, or what they launched, were not recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.damage import Hole, kernel_launches, without_launch, without_work
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.lookup.launched import drawing

T = range(10, 40)


def drawn(n: int, **kinds: object) -> Dag:
    return compile_events(timeline(drawing(n, call="launch", **kinds)), infer=False)  # type: ignore[arg-type]


def test_whole_traces_have_no_holes() -> None:
    """Every launch has its work."""
    assert without_work(drawn(60)) == without_launch(drawn(60)) == []


@pytest.mark.parametrize(("n_lost", "n_holes"), [(9, 0), (10, 1)])
def test_a_hole_has_ten_launches(n_lost: int, n_holes: int) -> None:
    """Nine without their work are not yet one."""
    assert len(without_work(drawn(40, lost=range(20, 20 + n_lost)))) == n_holes


@pytest.mark.parametrize(("n_lost", "found"), [(2, []), (3, [(3, 3)]), (22, [(22, 22)])])
def test_three_replays_without_work_are_a_hole(n_lost: int, found: list[tuple[int, int]]) -> None:
    """Of 25 graphs, with as many kernels that have their work; each graph is many kernels."""
    graphs = drawing(25, call="graph", lost=range(2, 2 + n_lost)).replace("<k", "<g")
    lines = graphs.replace(">k", ">g").replace("stream 7", "stream 9").split("\n")
    kernels = drawing(25, call="launch").replace("cpu 1 ", "cpu 2 ")
    dag = compile_events(timeline("\n".join([*lines, kernels])), infer=False)

    assert [(hole.n, hole.n_all) for hole in without_work(dag)] == found


def test_a_hole_lasts_from_the_work_before_to_the_work_after() -> None:
    """Launch 20 is at 400 us, launch 32 at 640 us; kernels run from 2 us after, for up to 14 us."""
    dag = drawn(60, lost=range(20, 32))
    before, after = np.flatnonzero(dag.events.is_device)[[19, 20]]

    assert without_work(dag) == [Hole(12, 12, 400_000, int(dag.events.ts_ns[after]))]
    assert dag.events.end_ns[before] < 400_000 < dag.events.ts_ns[after] == 642_000


def test_a_hole_begins_once_the_device_has_done_what_was_launched_before() -> None:
    """The host is ahead: what is lost would have run from the end of the work before."""
    calls = "".join(f"[launch >k{at}]" if at not in range(20, 30) else "[launch]" for at in T)
    first, last = ("".join(f"[k <k{at}         ]" for at in part) for part in (T[:10], T[20:]))
    dag = drawn_dag(f"cpu 1 |{calls}\nstream 7 |  {first}{' ' * 300}{last}")
    (hole,) = without_work(dag)
    ends = dag.events.end_ns[dag.events.is_device]

    assert hole.start_ns == ends[9]
    assert hole.end_ns == dag.events.ts_ns[dag.events.is_device][10]


@pytest.mark.parametrize(("n_between", "n_holes"), [(49, 1), (50, 2)])
def test_two_holes(n_between: int, n_holes: int) -> None:
    """Two buffers were lost if many launches between have their work, else one."""
    second = 30 + n_between
    dag = drawn(second + 40, lost=[*range(20, 30), *range(second, second + 10)])

    assert len(without_work(dag)) == n_holes


@pytest.mark.parametrize("every", [2, 3, 20])
def test_a_steady_rate_is_no_hole(every: int) -> None:
    """Some calls never have work, throughout the trace: why is not known."""
    assert without_work(drawn(240, lost=range(1, 240, every))) == []


def test_if_most_launches_lack_their_work_it_is_one_hole() -> None:
    """Four of five, from the first to the last."""
    (hole,) = without_work(drawn(100, lost=[at for at in range(100) if at % 5]))

    assert (hole.n, hole.n_all) == (80, 99)


@pytest.mark.parametrize(("since", "n_holes"), [(20, 0), (36, 1)])
def test_a_stream_that_stops_had_work_before(since: int, n_holes: int) -> None:
    """Every sixth launch is on it: of 23 before, four had their work, of 41, seven."""
    of_9 = range(5, 240, 6)

    assert (
        len(without_work(drawn(240, on_9=of_9, lost=[at for at in of_9 if at > since]))) == n_holes
    )


def test_a_stream_with_few_launches_may_stop() -> None:
    """Every sixtieth launch is on it, and the last eleven of them have no work."""
    of_9 = range(59, 1320, 60)
    (hole,) = without_work(drawn(1_320, on_9=of_9, lost=[at for at in of_9 if at > 700]))

    assert (hole.n, hole.n_all) == (11, 601)


def test_a_stream_that_stops_is_a_hole() -> None:
    """Every sixth launch is on stream 9, whose work is lost from the middle on."""
    of_9 = range(5, 240, 6)
    (hole,) = without_work(drawn(240, on_9=of_9, lost=[at for at in of_9 if at > 120]))

    assert (hole.n, hole.start_ns) == (20, 20_000 * 125)


def test_work_that_was_queued_when_the_capture_ended_is_no_hole() -> None:
    """The device was busy to the end, but for one kernel that had not ended."""
    calls = "".join(f"[launch >k{at}]" if at < 34 else "[launch     ]" for at in range(10, 50))
    work = "".join(f"[k <k{at}              ]" for at in range(10, 34))
    dag = drawn_dag(f"cpu 1 |{calls}\nstream 7 |  {work}")

    assert kernel_launches(dag)[1].sum() == 24
    assert without_work(dag) == []


def test_a_device_that_stops_before_the_end_is_a_hole() -> None:
    """It was idle when the last 15 kernels were launched."""
    dag = drawn(60, lost=range(45, 60))

    assert without_work(dag) == [Hole(15, 15, 900_000, dag.span.end_ns)]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        pytest.param("[cudaStreamBeginCapture]", "[cudaStreamEndCapture]", id="a capture"),
        pytest.param("", "[cudaStreamEndCapture]", id="that began before the trace"),
        pytest.param("[hipStreamBeginCapture]", "", id="that ended after it"),
    ],
)
def test_launches_that_are_captured_as_a_graph_are_not_run(begin: str, end: str) -> None:
    """Twenty on two threads."""
    captured = "[launch]" * 10
    threads = [f"cpu 1 |{begin}{captured}{end}", f"cpu 2 |{' ' * len(begin)}{captured}"]
    run = "".join(f"[launch >k{at}]" for at in range(10, 40))
    work = "".join(f"[k <k{at}     ]" for at in range(10, 40))
    place = " " * 150 if end else ""
    first = "" if end else " " * 600
    rows = [threads[0].replace("|", f"|{first}"), threads[1].replace("|", f"|{first}")]
    rows += [f"cpu 3 |{place}{run}", f"stream 7 |{place}  {work}"]

    calls, has_work = kernel_launches(drawn_dag("\n".join(rows)))
    assert (len(calls), has_work.sum()) == (30, 30)


@pytest.mark.parametrize(("outer", "inner"), [("", " >k{}"), (" >k{}", "")])
def test_a_launch_within_a_launch_is_one(outer: str, inner: str) -> None:
    """The runtime calls the driver, and either of them has the kernel."""
    calls = "".join(
        f"[cudaLaunchKernel{outer} [cuLaunchKernel{inner}]]".format(at) for at in range(10, 40)
    )
    work = "".join(f"[k <k{at}     ]" for at in range(10, 40))
    found, has_work = kernel_launches(drawn_dag(f"cpu 1 |{calls}\nstream 7 |  {work}"))

    assert (len(found), has_work.sum()) == (30, 30)


def test_calls_that_never_have_work_do_not_count() -> None:
    """A library that is not recorded launches twelve kernels in a row."""
    text = drawing(40, call="launch", tail="[cuLaunchKernel]" * 12)

    assert without_work(drawn_dag(text)) == []


def test_copies_without_work_are_no_hole() -> None:
    """Of no bytes, they launch nothing."""
    text = drawing(40, call="copy", lost=range(15, 30))

    assert without_work(drawn_dag(text)) == []


def test_a_device_without_records_is_one_hole() -> None:
    """Launches, and no work at all."""
    dag = drawn(30, lost=range(30))

    assert without_work(dag) == [Hole(30, 30, dag.span.start_ns, dag.span.end_ns)]


def test_kernels_that_nothing_links_to_launches_are_not_lost() -> None:
    """All are there: that they are not linked is another check."""
    dag = drawn(30, unlinked=range(30))

    assert without_work(dag) == without_launch(dag) == []


def test_kernels_that_were_recorded_as_ranges_of_counters_are_not_lost() -> None:
    """The profiler counted instead of recording kernels."""
    events = timeline(drawing(30, call="launch", lost=range(30), tail="{k }"))
    is_range = events.kind == EventKind.ANNOTATION
    kind = np.where(is_range, EventKind.COUNTER_RANGE, events.kind).astype(np.int8)

    assert is_range.any()
    assert without_work(compile_events(replace(events, kind=kind))) == []


def test_work_without_launch_after_launched_work_is_a_hole() -> None:
    """From the start of kernel 20 to the end of kernel 31."""
    dag = drawn(60, unlinked=range(20, 32))
    work = np.flatnonzero(dag.events.is_device)

    first, last = int(dag.events.ts_ns[work[20]]), int(dag.events.end_ns[work[31]])
    assert without_launch(dag) == [Hole(12, 12, first, last)]


def test_work_from_before_the_capture_is_no_hole() -> None:
    """The first thirty on their stream were launched before; another stream had work meanwhile."""
    dag = drawn(60, unlinked=range(1, 30), on_9=[0])

    assert without_launch(dag) == []


def test_kernels_that_never_have_a_launch_are_no_hole() -> None:
    """Of a library whose calls are not recorded."""
    text = drawing(60, call="launch", unlinked=range(20, 32)).replace("[k        ]", "[triton   ]")

    assert without_launch(drawn_dag(text)) == []


@pytest.mark.parametrize(
    ("call", "is_launch"),
    [
        ("cudaLaunchKernelExC", True),
        ("cuLaunchKernelEx", True),
        ("cudaLaunchCooperativeKernel", True),
        ("cudaGraphLaunch", True),
        ("hipExtModuleLaunchKernel", True),
        ("cudaLaunchHostFunc", False),
        ("cudaLaunchCooperativeKernelMultiDevice", False),
        ("cudaGraphUpload", False),
        ("cudaMemsetAsync", False),
    ],
)
def test_which_calls_launch_one_kernel_or_graph(call: str, is_launch: bool) -> None:
    """Others copy or fill, launch none, or one on each of several devices."""
    assert len(kernel_launches(drawn_dag(f"cpu 1 |[{call}]"))[0]) == is_launch
