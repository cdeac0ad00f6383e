"""How many examples a law tries: HYPOTHESIS_PROFILE names one of four profiles.

Plain pytest tries few, `.ci/run` as many (``ci``, always the same ones, so that a change passes or
fails by itself), `.ci/run --all` more, and ``thorough`` is for a night. A law whose examples are
expensive tries a part of what its profile says.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW_MACHINES = [HealthCheck.too_slow]

settings.register_profile(
    "default", max_examples=12, deadline=None, suppress_health_check=_SLOW_MACHINES
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("more", settings.get_profile("ci"), max_examples=60)
settings.register_profile(
    "thorough", settings.get_profile("default"), max_examples=1_000, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def one_in(n: int) -> settings:
    """Settings of a law that tries one example in so many of its profile."""
    return settings(max_examples=max(settings().max_examples // n, 1))
