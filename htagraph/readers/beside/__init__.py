"""Companion files: what else was recorded of the same run, added to a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from htagraph.errors import TraceFormatError
from htagraph.model.recording import Recording
from htagraph.readers.beside.execution_trace import is_execution_trace, with_execution_trace
from htagraph.readers.beside.graph_capture import is_chrome_trace, with_graph_captures
from htagraph.readers.beside.monitoring import is_monitoring, with_monitoring
from htagraph.readers.beside.ncu import is_ncu, with_ncu
from htagraph.readers.formats import is_other_format, refuse_other_format
from htagraph.readers.storage import exists, not_found, path_of

_Reader = Callable[[Recording, Path], Recording]

_COMPANIONS: tuple[tuple[Callable[[Path], bool], _Reader], ...] = (
    (is_execution_trace, with_execution_trace),
    (is_ncu, with_ncu),
    (is_monitoring, with_monitoring),
)
"""Tests whether a file is of a format, and readers of it; the first match reads it."""


def with_beside(recording: Recording, paths: Iterable[str | Path]) -> Recording:
    """A recording with the content of companion files, and an `Attachment` for each."""
    captures = []
    for path in map(path_of, paths):
        if not exists(path):
            raise not_found(path)
        companion = next((read for fits, read in _COMPANIONS if fits(path)), None)
        if companion is None and is_other_format(path):
            refuse_other_format(path)
        if companion is None and is_chrome_trace(path):
            captures.append(path)
            continue
        if companion is None:
            raise TraceFormatError(
                "this file is not of a format that can be added to a trace.",
                path=path,
                hint="an execution trace, the trace of a graph's capture, Nsight Compute CSV, an "
                "nvidia-smi or DCGM log can.",
            )
        recording = companion(recording, path)
    return with_graph_captures(recording, captures) if captures else recording
