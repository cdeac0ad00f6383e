"""HIDDEN_SYNC edges of the caching allocator: it waits before it gives memory back."""

from __future__ import annotations

import pytest

from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.model.kinds import Cause

_NAMES = {"F": "cudaMalloc", "R": "cudaFree", "M": "cudaMalloc"}


def retry(left_us: int = 40, silent_us: int = 400, *, inside: str = "", again: str = "[M ]") -> str:
    """An allocation that fails (F), silence, two calls that free (R), an allocation (M)."""
    silence = f"{inside:^{silent_us}}"
    runs = " " * (9 + silent_us - left_us)
    return f"""
        cpu 1    |[launch >a][aten::cat [F ]{silence}[R ][R ]{again}]
        stream 20|    [SendRecv <a{runs}]
    """


def test_an_allocator_that_frees_has_waited_for_work_of_the_device(compiled, arrows, rules):
    """The allocation fails, nothing is recorded for 400 us, and 40 us before its end work ends."""
    dag = compiled(retry(), names=_NAMES)

    assert arrows(dag, "hidden_sync") == [("SendRecv>", "cudaFree<", 0)]
    assert rules(dag, "hidden_sync") == {"cudaFree<": "allocator waits"}


def test_the_wait_is_work_of_the_device_and_what_follows_is_allocation(compiled):
    """Of 439 us, 382 are the kernel; what the host does next is charged to the allocator."""
    dag = compiled(retry(), names=_NAMES | {"SendRecv": "ncclDevKernel_SendRecv"})
    segments = critical_path(dag, dag.span)
    by_bound = segments.groupby("bound", observed=True)["dur_ns"].sum()
    causes = attributed_time(dag, segments).groupby("cause")["dur_ns"].sum()

    assert by_bound["communication"] == 382_000
    assert causes[Cause.ALLOCATION] == 53_000


@pytest.mark.parametrize(
    ("drawing", "why"),
    [
        (retry(again=""), "what frees and allocates no more was short of nothing"),
        (retry(again="][aten::add [M ]"), "another operator allocates next"),
        (retry(inside="[aten::empty]"), "the thread did something"),
        (retry().replace("[aten::cat [F ]", "{range     [F ]").replace("]]", "]}"), "no operator"),
        (retry(inside="[cudaEventQuery]"), "the thread called something"),
        (
            f"{retry()}cpu 2    |{'':200}[launch >b]\nstream 20|{'':389}[gemm <b]",
            "another thread launched what ended last",
        ),
        (f"{retry()}stream 7 |{'':300}[gemm    ]", "work of two streams ended"),
    ],
)
def test_there_is_no_edge_without_the_whole_pattern(compiled, arrows, drawing, why):
    """Each drawing lacks one thing."""
    names = {short: name for short, name in _NAMES.items() if f"[{short} " in drawing}

    assert arrows(compiled(drawing, names=names), "hidden_sync") == [], why


def test_a_call_that_says_that_it_waits_is_enough(compiled, arrows):
    """Newer profilers record cudaEventSynchronize."""
    dag = compiled(retry(inside=f"[cudaEventSynchronize{' ' * 337}]"), names=_NAMES)

    assert arrows(dag, "hidden_sync") == []
    assert arrows(dag, "sync") == [("SendRecv>", "cudaEventSynchronize>", 0)]


@pytest.mark.parametrize(
    ("left_us", "silent_us", "n"),
    [
        (50, 400, 1),
        (51, 400, 0),
        (200, 4_000, 1),
        (201, 4_000, 0),
        (5, 200, 0),
        (5, 201, 1),
    ],
)
def test_the_allocator_frees_soon_after_the_work_has_ended(compiled, left_us, silent_us, n):
    """Within an eighth of its wait, and 200 us; it needs up to 200 us of its own."""
    dag = compiled(retry(left_us, silent_us), names=_NAMES)

    assert int((dag.edges.rule_names == "allocator waits").sum()) == n


def test_hip_frees_in_the_same_way(compiled, rules):
    """PyTorch's allocator is one, by other names."""
    dag = compiled(retry(), names={"F": "hipMalloc", "R": "hipFree", "M": "hipMalloc"})

    assert rules(dag, "hidden_sync") == {"hipFree<": "allocator waits"}
