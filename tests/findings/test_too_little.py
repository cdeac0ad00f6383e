"""A trace that shows hardly anything is not judged."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.synth import timeline
from tests.real_traces import case, located


def withheld(drawing: str, us_per_column: int = 1000) -> str:
    return (
        hg.Trace.from_events(timeline(drawing, us_per_column=us_per_column))
        .compile()
        .verdict()
        .withheld
    )


def test_a_step_without_anything_in_it_is_not_judged() -> None:
    """Two events of 1.01 s; what is missing is what to capture."""
    assert withheld(
        """
    us       |0         10
    cpu 1    |{ProfilerStep#5%s}
    cpu 2    |[a]
    """
        % (" " * 990)
    ) == (
        "2 events, no device work, and 0 ns of 1.01 s in operators, calls or ranges of the "
        "program. Capture whole steps: profile around the training loop, with "
        "ProfilerActivity.CPU and the device's activity (ProfilerActivity.CUDA), and "
        "with_stack=True for Python code."
    )


@pytest.mark.parametrize(("n", "is_judged"), [(8, False), (12, True)])
def test_a_hundredth_of_the_path_in_operators_is_enough(n: int, is_judged: bool) -> None:
    """8 or 12 of 1,000 columns."""
    drawing = "cpu 1 |{ProfilerStep#5" + " " * 970 + "}[" + "a" * (n - 2) + "]"

    assert (withheld(drawing) == "") is is_judged


@pytest.mark.parametrize(("n_events", "is_judged"), [(99, False), (100, True)])
def test_a_hundred_events_are_enough(n_events: int, is_judged: bool) -> None:
    """The place of a long pause is known if its neighbours are."""
    drawing = "cpu 1 |[a]" + " " * 50_000 + "[a]" * (n_events - 1)

    assert (withheld(drawing) == "") is is_judged


@pytest.mark.parametrize(
    "event", ["cpu 1 |{validation%s}", "cpu 1 |[launch >a]%s\nstream 7 |%s[k <a]"]
)
def test_a_range_of_the_program_or_device_work_is_enough(event: str) -> None:
    """Both say what the time is for."""
    drawing = event.replace("%s", " " * 500)

    assert "Capture whole steps" not in withheld(drawing)


@pytest.mark.parametrize(
    "name", [case("hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz")]
)
def test_rank_34_of_300_is_not_judged(name: str) -> None:
    """A step marker, five operators of 4 us, and gloo on another thread."""
    said = hg.load(located(name)).compile().verdict().withheld

    assert said.startswith("18 events, no device work, and 3.96 us of 1.28 s in operators")
