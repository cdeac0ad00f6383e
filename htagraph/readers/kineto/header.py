"""The header of a file, all keys beside its events: rank, world size and base time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from htagraph.readers.discover import rank_in_name

__all__ = ["base_time_of", "decoded", "rank_of", "world_size_of"]

_MAX_BASE = 1 << 62


def decoded(raw: bytes) -> object:
    """The value of some JSON bytes.

    Raises
    ------
    ValueError
        If the bytes are no JSON.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            return json.loads(raw.decode("utf-8", "replace"))
        except RecursionError as exc:
            raise ValueError("nested too deep") from exc


def base_time_of(metadata: Mapping[str, Any]) -> int:
    """The time in ns that is 0 in the file; 0 where the header gives no usable one."""
    base = metadata.get("baseTimeNanoseconds", 0)
    if isinstance(base, str) and base.strip().lstrip("-").isdigit():
        base = int(base)
    return base if isinstance(base, int) and abs(base) < _MAX_BASE else 0


def rank_of(metadata: Mapping[str, Any], path: Path | None) -> tuple[int, str]:
    """The rank of a trace and where it was found; 0 by default.

    Examples
    --------
    >>> rank_of({}, Path("worker3_step_12.pt.trace.json"))
    (3, 'file name')
    """
    rank = _number(metadata, "rank")
    if rank is not None:
        return rank, "distributedInfo"
    rank = rank_in_name(path) if path is not None else None
    return (rank, "file name") if rank is not None else (0, "default")


def world_size_of(metadata: Mapping[str, Any]) -> int | None:
    """The number of ranks of the job, None where the file does not say."""
    return _number(metadata, "world_size")


def _number(metadata: Mapping[str, Any], key: str) -> int | None:
    """An integer of ``distributedInfo``."""
    info = metadata.get("distributedInfo")
    value = info.get(key) if isinstance(info, dict) else None
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
