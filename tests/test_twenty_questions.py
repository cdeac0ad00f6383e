"""Twenty questions of other tools' users: the document has today's answers, and they are true."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest

from tests.real_traces import case, located
from tests.twenty_questions import questions

Event = dict[str, Any]

QUESTIONS = {one.number: one for one in questions()}


@cache
def raw(name: str) -> list[Event]:
    """The complete events of a trace, as the profiler wrote them."""
    file = located(name)
    text = file.read_bytes()
    text = gzip.decompress(text) if file.suffix == ".gz" else text
    return [one for one in json.loads(text)["traceEvents"] if one.get("ph") == "X"]


def called(name: str, part: str, kind: str = "") -> list[Event]:
    """Events with a part in their name, in order of time."""
    found = [one for one in raw(name) if part in one["name"] and kind in one.get("cat", "")]
    return sorted(found, key=lambda one: one["ts"])


def end(event: Event) -> float:
    return event["ts"] + event["dur"]


def inside(event: Event, others: list[Event]) -> bool:
    return any(one["ts"] <= event["ts"] < end(one) for one in others)


def before_on_stream(name: str, kernel: Event) -> float:
    """When the work before a kernel on its stream ended."""
    stream = kernel["args"]["stream"]
    return max(
        end(one)
        for one in raw(name)
        if one.get("args", {}).get("stream") == stream and one["ts"] < kernel["ts"]
        if one["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    )


def asked(number: int) -> Any:
    return case(QUESTIONS[number].trace, number)


def test_there_are_twenty() -> None:
    assert list(QUESTIONS) == list(range(1, 21))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [asked(number) for number in QUESTIONS])
def test_the_document_has_the_answer_of_today(name, number) -> None:
    question = QUESTIONS[number]

    assert (question.trace, question.asked) == (name, question.answer)


@pytest.mark.parametrize(("name", "number"), [asked(1)])
def test_synchronizations_wait_for_copies(name, number) -> None:
    """Two in each step, of which the first step is left out: 10 calls, 461 us."""
    calls = called(name, "cudaStreamSynchronize")
    later = [one for one in calls if inside(one, called(name, "ProfilerStep#")[1:])]

    assert (len(calls), len(later), sum(one["dur"] for one in later)) == (12, 10, 461)
    assert "10        9.55 ms          461 us" in QUESTIONS[number].answer


@pytest.mark.parametrize(("name", "number"), [asked(2)])
def test_six_numbers_are_read_from_the_device(name, number) -> None:
    copies = called(name, "Memcpy DtoH (Device -> Pinned)")

    assert len(copies) == 6
    assert sum(one["dur"] for one in copies) == pytest.approx(44.4, abs=0.05)
    assert "6    8.62 ms        44.4 us" in QUESTIONS[number].answer


@pytest.mark.parametrize(("name", "number"), [asked(4)])
def test_one_graph_launch_has_544_kernels(name, number) -> None:
    (launch,) = called(name, "hipGraphLaunch")
    kernels = [
        one
        for one in raw(name)
        if one.get("cat") == "kernel"
        if one["args"]["correlation"] == launch["args"]["correlation"]
    ]

    assert len(kernels) == 544
    assert sum(one["dur"] for one in kernels) == pytest.approx(9_656, abs=1)
    assert "544         1.57 ms        9.66 ms" in QUESTIONS[number].answer


@pytest.mark.parametrize(("name", "number"), [asked(5)])
def test_the_optimizer_launches_27_kernels(name, number) -> None:
    """9 in each of three steps, 2.08 ms together."""
    ranges = called(name, "Optimizer.step", "user_annotation")
    host = [one for one in ranges if one["cat"] == "user_annotation"]
    kernels = {one["args"]["correlation"]: one for one in raw(name) if one.get("cat") == "kernel"}
    launched = [
        kernels[one["args"]["correlation"]]
        for one in called(name, "cudaLaunchKernel")
        if inside(one, host) and one["args"]["correlation"] in kernels
    ]

    assert (len(host), len(launched)) == (3, 27)
    assert sum(one["dur"] for one in launched) == pytest.approx(1_520 + 554, abs=10)
    assert "18            44.3 ms        1.52 ms" in QUESTIONS[number].answer


@pytest.mark.parametrize(("name", "number"), [asked(7)])
def test_the_all_gather_is_late_because_its_launch_is(name, number) -> None:
    """Its launch ended 1.5 us before; its stream had been idle for 421 us."""
    kernel = called(name, "AllGather", "kernel")[0]
    (launch,) = (
        one
        for one in called(name, "cuLaunchKernelEx")
        if one["args"]["correlation"] == kernel["args"]["correlation"]
    )

    assert kernel["ts"] - end(launch) == pytest.approx(1.48, abs=0.01)
    assert kernel["ts"] - before_on_stream(name, kernel) == pytest.approx(421, abs=1)
    assert "1.48 us\n  after its launch" in QUESTIONS[number].answer


@pytest.mark.parametrize(("name", "number"), [asked(9)])
def test_the_copy_waits_for_the_data_loader(name, number) -> None:
    """It loads for 62.6 ms, of which operators inside it take 22.5."""
    (step,) = called(name, "ProfilerStep#10")
    (loading,) = (one for one in called(name, "DataLoader") if inside(one, [step]))
    (copy, *_) = (one for one in called(name, "Memcpy HtoD") if one["ts"] > end(loading))

    assert loading["dur"] == 62_633
    assert 0 < copy["ts"] - end(loading) < 1_000
    assert "62.8 ms on thread 25738: DataLoader.__next__ 40.1 ms" in QUESTIONS[number].answer


@pytest.mark.parametrize(("name", "number"), [asked(12)])
def test_rank_2_comes_last(name, number) -> None:
    """In the last exchange it takes 35 us there, and 293 on rank 0, which came 258 us before."""
    last = {}
    for file in located(name).glob("*.json"):
        trace = json.loads(file.read_text())
        kernels = [one for one in trace["traceEvents"] if "ncclDevKernel" in one.get("name", "")]
        last[trace["distributedInfo"]["rank"]] = max(kernels, key=lambda one: one["ts"])["dur"]

    assert (min(last, key=last.__getitem__), last[2], last[0]) == (2, 35, 293)
    assert "rank 0 waited 258 us for rank\n  2" in QUESTIONS[number].answer


@pytest.mark.parametrize(("name", "number"), [asked(13)])
def test_the_host_sets_up_the_device_for_half_a_minute(name, number) -> None:
    """One call takes 29.9 s, 15 calls of `cudaFree` 6.55 s; the stream was idle for 1.04 s."""
    first = called(name, "fft2d_r2c_32x32", "kernel")[0]

    assert max(one["dur"] for one in called(name, "StreamPriorityRange")) == 29_927_377
    assert sum(one["dur"] for one in called(name, "cudaFree")) == 6_553_827
    assert first["ts"] - before_on_stream(name, first) == 1_043_841
    assert "cudaDeviceGetStreamPriorityRange 29.9 s" in QUESTIONS[number].answer


@pytest.mark.parametrize(("name", "number"), [asked(10)])
def test_one_call_waits_for_three_kernels(name, number) -> None:
    """They run on three streams, and the one call that waits ends after the last of them."""
    (call,) = called(name, "cudaDeviceSynchronize")
    kernels = called(name, "", "kernel")

    assert len({one["args"]["stream"] for one in kernels}) == len(kernels) == 3
    assert 0 <= end(call) - max(map(end, kernels)) < 20
    assert QUESTIONS[number].answer.count("cudaDeviceSynchronize") == 3


@pytest.mark.parametrize(("name", "number"), [asked(15)])
def test_705_kernels_have_no_launch(name, number) -> None:
    calls = [one for one in raw(name) if one.get("cat") in ("cuda_runtime", "cuda_driver")]
    known = {one["args"]["correlation"] for one in calls}
    kernels = [one for one in raw(name) if one.get("cat") == "kernel"]
    orphans = [one for one in kernels if one["args"]["correlation"] not in known]

    assert (len(orphans), sum(one["dur"] for one in orphans)) == (705, 56_350)
    assert "705  56.4 ms" in QUESTIONS[number].answer
