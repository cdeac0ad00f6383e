"""Reads a saved graph, and the recording behind it; nothing in the file is executed."""

from __future__ import annotations

import math
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceFormatError
from htagraph.model.archive import unpack, unpack_recording
from htagraph.model.dag import Dag
from htagraph.model.recording import Origin, Recording
from htagraph.readers.graph_checks import check_graph, check_places, check_recording
from htagraph.readers.kineto.event_args import ArgsIndex

BROKEN = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    AttributeError,
    MemoryError,
    OverflowError,
    RuntimeError,  # encrypted, nested too deep, columns that differ in length
    zipfile.BadZipFile,
)
"""What opening a damaged file, or one that was tampered with, can raise."""


def read_graph(path: str | Path) -> tuple[Dag, int, Origin | None]:
    """A saved graph, its rank, and the file that it was made from."""
    try:
        return _graph(arrays_in(path))
    except BROKEN as exc:
        raise _no_graph(path, exc) from exc


def read_compiled(path: str | Path, source: Path) -> tuple[Dag, Recording]:
    """A graph that was stored with its recording.

    Parameters
    ----------
    source : Path
        The trace of both.
    """
    try:
        arrays = arrays_in(path)
        dag, rank, _ = _graph(arrays)
        check_places(arrays, dag)
        recording = unpack_recording(arrays, dag, rank)
        check_recording(recording)
    except BROKEN as exc:
        raise _no_graph(path, exc) from exc
    origin = recording.origin
    assert origin is not None
    offset, length = arrays["args.offset"], arrays["args.length"]
    args = ArgsIndex(source, offset, length) if len(offset) else None
    return dag, replace(recording, origin=replace(origin, source=source, args=args))


def arg_places(origin: Origin | None) -> dict[str, npt.NDArray[Any]]:
    """The place of each event in its file, as arrays to store; empty if unknown."""
    args = origin.args if origin is not None else None
    if isinstance(args, ArgsIndex):
        return {"args.offset": args.offset, "args.length": args.length}
    return {"args.offset": np.empty(0, np.int64), "args.length": np.empty(0, np.int32)}


def _graph(arrays: dict[str, npt.NDArray[Any]]) -> tuple[Dag, int, Origin | None]:
    dag, rank, origin = unpack(arrays)
    check_graph(dag)
    if type(rank) is not int or (origin and type(origin.base_time_ns) is not int):
        raise ValueError("its rank or its time is no number")
    return dag, rank, origin


def _no_graph(path: str | Path, exc: BaseException) -> TraceFormatError:
    return TraceFormatError(
        f"not a valid saved graph: {str(exc) or type(exc).__name__}.",
        path=path,
        hint="load the trace, compile it and save it again.",
    )


def arrays_in(path: str | Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a file; uncompressed, so never larger than the file."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed")
        return {
            entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in entries
        }


def _array(content: bytes) -> npt.NDArray[Any]:
    file = BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array is of another format")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or is_fortran:
        raise ValueError("an array is not one of plain numbers")
    return np.frombuffer(content, dtype, math.prod(shape), file.tell()).reshape(shape)
