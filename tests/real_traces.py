"""The real traces beside the repository: where they are, and which files there are traces."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "traces"
"""Absent in most checkouts; tests of real traces are skipped then."""

_NO_TRACES = ("*.truth.json", "*.et.json.gz", "MANIFEST.json")
"""Files beside the traces: planted truths, an execution trace, a list."""


def traces_in(folder: Path) -> list[Path]:
    """The traces in a folder and its subfolders, sorted by path."""
    found = (path for ending in ("*.json", "*.json.gz") for path in folder.rglob(ending))
    return sorted(path for path in found if not any(map(path.match, _NO_TRACES)))


TRACES = traces_in(FOLDER)
BROKEN_METADATA = [path for path in TRACES if path.parent.name == "allreduce_2_meta2_tb"]
"""Traces with quotes inside of strings in their header: `json` refuses them, the reader mends."""
