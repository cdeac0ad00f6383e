"""What a file says outside its events: top-level keys, the rank, the base time, names of processes and threads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

__all__ = ["RankSource", "base_time_ns", "decoded", "rank_of", "world_size"]

RankSource = Literal["distributedInfo", "file name", "default"]

_RANK_IN_NAME = re.compile(r"(?:^|[^a-zA-Z])(?:rank|worker|tp|dp)[-_.]?(\d+)(?!\d)", re.IGNORECASE)
_MAX_BASE = 1 << 62


def decoded(raw: bytes) -> object:
    """Return the value of some JSON bytes.

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


def base_time_ns(metadata: Mapping[str, Any]) -> int:
    """Return what is added to every time, 0 where the file says nothing that can be used."""
    base = metadata.get("baseTimeNanoseconds", 0)
    if isinstance(base, str) and base.strip().lstrip("-").isdigit():
        base = int(base)
    return base if isinstance(base, int) and abs(base) < _MAX_BASE else 0


def rank_of(metadata: Mapping[str, Any], path: Path | None) -> tuple[int, RankSource]:
    """Return the rank of a trace and what it was found in: ``distributedInfo``, the file's name, or nothing (0).

    Examples
    --------
    >>> rank_of({}, Path("worker3_step_12.pt.trace.json"))
    (3, 'file name')
    """
    rank = _number(metadata, "rank")
    if rank is not None:
        return rank, "distributedInfo"
    found = _RANK_IN_NAME.search(path.name) if path is not None else None
    return (int(found.group(1)), "file name") if found else (0, "default")


def world_size(metadata: Mapping[str, Any]) -> int | None:
    """Return the number of ranks of the job, None where the file does not say."""
    return _number(metadata, "world_size")


def _number(metadata: Mapping[str, Any], key: str) -> int | None:
    """Return an integer of ``distributedInfo``."""
    info = metadata.get("distributedInfo")
    value = info.get(key) if isinstance(info, dict) else None
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
