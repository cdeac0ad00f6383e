"""The folder of real traces as a fixture, and how hard hypothesis tries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.real_traces import FOLDER

settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """Folder of the real traces; a test that needs it is skipped where it is absent."""
    if not FOLDER.is_dir():
        pytest.skip("needs ../shared/traces")
    return FOLDER
