"""The range of the program that most of a finding lies in is a detail of it."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.synth import timeline


def first_detail(drawing: str, names: dict[str, str] | None = None) -> str:
    """Detail of the first finding of a drawing, in which a column is 10 us."""
    events = timeline(drawing, us_per_column=10, names=names or {})
    return hg.Trace.from_events(events).compile().verdict().findings[0].detail


def test_a_range_of_the_program_names_host_code() -> None:
    """Of 400 us between operators, 300 are in `validation`."""
    assert (
        first_detail("""
    cpu 1    |[aten::mm]          {validation                   }[aten::mm]
    """)
        == "most of it in validation"
    )


@pytest.mark.parametrize(("n", "is_named"), [(14, False), (16, True)])
def test_most_of_it_is_more_than_half(n: int, is_named: bool) -> None:
    """140 or 160 us of 300: the rest is before the range."""
    drawing = "cpu 1 |[aten::mm]" + " " * (30 - n) + "{eval" + " " * (n - 6) + "}[aten::mm]"

    assert first_detail(drawing) == ("most of it in eval" if is_named else "")


@pytest.mark.parametrize(("n", "is_named"), [(85, True), (92, False)])
def test_a_range_around_nearly_all_tells_nothing(n: int, is_named: bool) -> None:
    """From nine tenths of the window on."""
    drawing = "cpu 1 |[aten::mm" + " " * (90 - n) + "]{train" + " " * (n - 7) + "}"

    assert first_detail(drawing) == ("most of it in train" if is_named else "")


def test_the_smallest_of_nested_ranges_is_named() -> None:
    """All of `epoch` and of `metrics` is code; `epoch` has 410 us, `metrics` 300 of them."""
    assert (
        first_detail("""
    cpu 1    |[aten::mm]{epoch                                   }[aten::mm   ]
    cpu 1    |             {metrics                      }
    """)
        == "most of it in metrics"
    )


@pytest.mark.parametrize(
    "name",
    [
        "ProfilerStep#3",
        "Optimizer.zero_grad#SGD.zero_grad",
        "DistributedDataParallel.forward",
        "gloo:all_reduce",
        "FSDP::pre_forward (blocks.0)",
        "Forward 3",
    ],
)
def test_ranges_of_pytorch_are_not_the_programs(name: str) -> None:
    """They are around code that the program did not name."""
    drawing = "cpu 1 |[aten::mm]          {range                        }[aten::mm]"
    assert first_detail(drawing, {"range": name}) == ""


def test_waits_are_in_the_range_of_the_call_that_waits() -> None:
    """The host time that `aten::item` delays, after the range, is charged to it as well."""
    graph = hg.Trace.from_events(
        timeline(
            """
    cpu 1    |       {logging                               }
    cpu 1    |[launch >a][aten::item                      ]   [launch >b]
    cpu 1    |             [cudaStreamSynchronize        ]
    stream 7 |       [gemm <a                     ]                [k2 <b ]
    """,
            us_per_column=10,
        )
    ).compile()
    (wait,) = (one for one in graph.verdict().findings if one.cause == "GPU synchronization")

    assert wait.detail == "most of it in logging"
