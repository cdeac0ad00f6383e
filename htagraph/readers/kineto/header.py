"""The header of a file, which is all keys next to its events: rank, world size, base time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from htagraph.model.devices import DeviceProperties
from htagraph.model.recording import MAX_RANKS
from htagraph.readers.defects import Defect
from htagraph.readers.repair_log import RepairLog
from htagraph.readers.storage import rank_in_name

MAX_TIME_NS = (1 << 62) - 1
"""Largest absolute time of a trace, 146 years: sums of two such times fit in int64."""

_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_DROPPED = re.compile(r"Dropped ([0-9]{1,18}) activity records")
_FULL = "Exceeded max GPU buffer count"
_MOST_DIGITS = 40
"""Digits of the longest integer that is decoded (chosen); longer ones stay text: ``int`` is
quadratic in the number of digits, and Python 3.11 refuses more than 4,300."""


def decoded(raw: bytes) -> object:
    """The value of JSON bytes; an integer of very many digits stays text."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            return json.loads(raw.decode("utf-8", "replace"), parse_int=_integer)
        except RecursionError as exc:
            raise ValueError("nested too deep") from exc


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


def base_time_of(metadata: Mapping[str, Any], log: RepairLog | None = None) -> int:
    """The time in ns that is 0 in the file; 0 if the header has no valid one."""
    base = _number(metadata, "baseTimeNanoseconds", -MAX_TIME_NS + 1, MAX_TIME_NS, log)
    return 0 if base is None else base


def rank_of(
    metadata: Mapping[str, Any], path: Path | None, log: RepairLog | None = None
) -> tuple[int, str]:
    """The rank of a trace and where it was found; 0 by default."""
    rank = _number(_job_of(metadata), "rank", 0, MAX_RANKS, log)
    if rank is not None:
        return rank, "distributedInfo"
    rank = rank_in_name(path) if path is not None else None
    return (rank, "file name") if rank is not None else (0, "default")


def world_size_of(metadata: Mapping[str, Any], log: RepairLog | None = None) -> int | None:
    """The number of ranks of the job, None if the file does not record it."""
    return _number(_job_of(metadata), "world_size", 0, MAX_RANKS, log)


def note_losses(metadata: Mapping[str, Any], log: RepairLog) -> None:
    """Count what the profiler lost, by the warnings that it keeps in the header."""
    listed = [metadata.get(level) for level in ("WARNING", "ERROR")]
    for said in (str(one) for some in listed if isinstance(some, list) for one in some):
        if dropped := _DROPPED.search(said):
            log.add(Defect.DROPPED_RECORDS, n=int(dropped[1]))
        if _FULL in said:
            log.once(Defect.FULL_BUFFERS, -1)


_DEVICE_KEYS = {
    "device": "id",
    "n_sms": "numSms",
    "warp_size": "warpSize",
    "threads_per_sm": "maxThreadsPerMultiprocessor",
    "registers_per_sm": "regsPerMultiprocessor",
    "shared_memory_per_sm": "sharedMemPerMultiprocessor",
    "memory_bytes": "totalGlobalMem",
    "compute_major": "computeMajor",
    "compute_minor": "computeMinor",
}
"""Keys of ``deviceProperties`` by field of `DeviceProperties`."""


def devices_of(metadata: Mapping[str, Any]) -> tuple[DeviceProperties, ...]:
    """The devices in the header; values that are not numbers are dropped."""
    listed = metadata.get("deviceProperties")
    return tuple(
        _device(number, device)
        for number, device in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(device, dict)
    )


def _device(number: int, listed: Mapping[str, Any]) -> DeviceProperties:
    """A listed device; its number is its position unless it has an id."""
    found = {
        name: value
        for name, key in _DEVICE_KEYS.items()
        if (value := _number(listed, key, 0, MAX_TIME_NS, None)) is not None
    }
    return DeviceProperties(**{"device": number, **found, "name": str(listed.get("name", ""))})  # type: ignore[arg-type]


def _job_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    info = metadata.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _number(
    values: Mapping[str, Any], key: str, least: int, limit: int, log: RepairLog | None
) -> int | None:
    """An integer in ``[least, limit)``, also written as text; None for anything else."""
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < limit:
        return value
    if log is not None:
        log.add(Defect.BAD_METADATA)
    return None
