"""What a check advises where noise hides a change."""

from __future__ import annotations

import pytest

from htagraph.comparison.limits import Limits, check_run
from tests.comparison.profiles import profile

NOISY = profile({"compute": [100_000, 120_000, 100_000, 120_000]})


@pytest.mark.parametrize(
    ("allowed", "more"),
    [(0.02, "profile about 758 typical steps each"), (0.017, "raise the limit")],
)
def test_a_capture_is_suggested_up_to_a_thousand_steps(allowed: float, more: str) -> None:
    """Four steps have a noise of 27.5%; it falls with the square root of their number."""
    found = check_run(NOISY, Limits(fail_above=allowed), baseline=NOISY).limits[0]

    assert found.state == "withheld"
    assert more in found.said


@pytest.mark.parametrize(("dur_ns", "state"), [(104_000, "passed"), (106_000, "broken")])
def test_five_percent_are_allowed_by_default(dur_ns: int, state: str) -> None:
    """Without noise."""
    before, after = (profile({"compute": [each] * 4}) for each in (100_000, dur_ns))

    assert check_run(after, Limits(), baseline=before).state == state
