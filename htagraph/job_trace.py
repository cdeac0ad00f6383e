"""One Perfetto trace of a whole job: all ranks on one clock, and the job's path on top of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from htagraph.job_path import JobPath

__all__ = ["write_job_trace"]


def write_job_trace(out: str | Path, path: JobPath) -> Path:
    """X."""
    raise NotImplementedError
