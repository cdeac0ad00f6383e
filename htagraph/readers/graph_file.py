"""Reads a saved graph, and the recording behind it; nothing in the file is executed."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceFormatError
from htagraph.model.archive import Arrays, unpack, unpack_recording
from htagraph.model.dag import Dag
from htagraph.model.recording import Origin, Recording
from htagraph.readers.graph_checks import check_graph, check_places, check_recording
from htagraph.readers.kineto.event_args import ArgsIndex

_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<>|][biuf]\d)', 'fortran_order': False, "
    rb"'shape': \(([\d, ]*)\), \} *\n",
    re.DOTALL,
)
"""What `write_array` writes before numbers; numpy's own reader parses it as Python."""

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
        return graph_of(arrays_in(path))
    except BROKEN as exc:
        raise TraceFormatError(
            f"not a valid saved graph: {str(exc) or type(exc).__name__}.",
            path=path,
            hint="load the trace, compile it and save it again.",
        ) from exc


def compiled_of(arrays: Arrays, source: Path) -> tuple[Dag, Recording]:
    """A graph that was stored with its recording, of a trace; one of `BROKEN` if it is none."""
    dag, rank, _ = graph_of(arrays)
    check_places(arrays, dag)
    recording = unpack_recording(arrays, dag, rank)
    check_recording(recording)
    origin = recording.origin
    assert origin is not None
    return dag, replace(recording, origin=_of_source(origin, arrays, source))


def rank_of(arrays: Arrays, source: Path) -> tuple[Dag, int, Origin | None]:
    """As `graph_of`; ``args`` are read from the trace, if it was stored with its recording.

    `source`: the trace.
    """
    dag, rank, origin = graph_of(arrays)
    if origin is None or "args.offset" not in arrays:  # a changed run has no file
        return dag, rank, origin
    check_places(arrays, dag)
    return dag, rank, _of_source(origin, arrays, source)


def _of_source(origin: Origin, arrays: Arrays, source: Path) -> Origin:
    """An origin with the file of the trace, and the place of each event in it."""
    offset, length = arrays["args.offset"], arrays["args.length"]
    args = ArgsIndex(source, offset, length) if len(offset) else None
    return replace(origin, source=source, args=args)


def arg_places(origin: Origin | None) -> dict[str, npt.NDArray[Any]]:
    """The place of each event in its file, as arrays to store; empty if unknown."""
    args = origin.args if origin is not None else None
    if isinstance(args, ArgsIndex):
        return {"args.offset": args.offset, "args.length": args.length}
    return {"args.offset": np.empty(0, np.int64), "args.length": np.empty(0, np.int32)}


def graph_of(arrays: Arrays) -> tuple[Dag, int, Origin | None]:
    """A stored graph, its rank, and the file that it was made from; one of `BROKEN` if none."""
    dag, rank, origin = unpack(arrays)
    check_graph(dag)
    if type(rank) is not int or (origin and type(origin.base_time_ns) is not int):
        raise ValueError("its rank or its time is no number")
    return dag, rank, origin


def arrays_in(
    file: str | Path | BinaryIO, seal: Callable[[Sequence[zipfile.ZipInfo]], bytes] | None = None
) -> Arrays:
    """The arrays of a file, which are not compressed; `seal` tells what must mark it."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if seal and archive.comment != seal(entries):
            raise ValueError("it is of other files, or not whole")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed")
        return {
            entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in entries
        }


def _array(content: bytes) -> npt.NDArray[Any]:
    header = _HEADER.match(content)
    if header is None:
        raise ValueError("an array is not one of plain numbers")
    dtype, dims = header.groups()
    shape = [int(dim) for dim in re.findall(rb"\d+", dims)]
    values = np.frombuffer(content, dtype.decode(), math.prod(shape), header.end())
    return values.reshape(shape)
