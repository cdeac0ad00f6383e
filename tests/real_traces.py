"""Real traces: captures of a real PyTorch in this repository, and public traces.

`tests/data/captures` is always there. A test of a public trace names it in its marker ``public``,
and is left out where it is not: `tests/public_traces.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.public_traces import FOLDER, PUBLIC_TRACES

CAPTURES = Path(__file__).parent / "data" / "captures"

_NO_TRACES = ("*.truth.json", "*.et.json.gz", "MANIFEST.json", "nccl_trace_rank_*")
"""Files beside the traces: planted truths, an execution trace, a list, dumps of hanging jobs."""


def traces_in(folder: Path) -> list[Path]:
    """The traces in a folder and its subfolders, sorted by path."""
    found = (path for ending in ("*.json", "*.json.gz") for path in folder.rglob(ending))
    return sorted(path for path in found if not any(map(path.match, _NO_TRACES)))


def located(name: str) -> Path:
    """A capture, as "captures/…", or a public trace or a folder of some, by its name."""
    return CAPTURES.parent / name if name.startswith("captures/") else FOLDER / name


def case(name: str, *values: object) -> Any:
    """Parameters of a test: the name of a real trace, and more; marked where it is public."""
    marks = () if name.startswith("captures/") else pytest.mark.public(name)
    return pytest.param(name, *values, marks=marks, id="-".join(map(str, (name, *values)))[:60])


def cases(names: Iterable[str]) -> list[Any]:
    """Parameters of a test: the names of real traces."""
    return [case(name) for name in names]


TRACES = [
    *(f"captures/{path.relative_to(CAPTURES)}" for path in traces_in(CAPTURES)),
    *(trace.name for trace in PUBLIC_TRACES if not trace.name.endswith(".sqlite")),
]
"""The names of all real traces but the exports of Nsight Systems."""

BROKEN_METADATA = [name for name in TRACES if "allreduce_2_meta2_tb" in name]
"""Traces with unescaped quotes in their header: `json` refuses them, the reader repairs them."""
