"""Places the samples of a monitoring log on a trace: by time, time zone and GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import TraceFormatError
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable
from htagraph.model.names import MEMORY_CLOCK, SM_CLOCK
from htagraph.model.recording import Attachment, Recording, Repair
from htagraph.model.samples import SampleTable, Series
from htagraph.model.units import human_count, human_duration
from htagraph.readers.beside.monitoring_logs import (
    FIRST_NS,
    LAST_NS,
    Log,
    instrument_of,
    mean_over_ns,
    read_log,
    zone_of,
)
from htagraph.readers.byte_stream import first_bytes, text_lines

_HEAD_BYTES = 16_384
"""Bytes in which a log must show its header (chosen)."""

_OTHER, _OTHER_PART, _WHOLE = -2, -3, -4
"""Samples of none of the devices of a trace, in place of a device."""

_INSTANCE = re.compile(r"\bMIG (\d+c\.)?(\d+g\.\d+gb)", re.IGNORECASE)

_AROUND = 1.5
"""Sampling intervals around the trace in which samples belong to it: one, and half for jitter."""

_ADVICE = (
    "record times: nvidia-smi --query-gpu=timestamp,index,…; nvidia-smi dmon -o DT; "
    "dcgmi dmon … | ts '%.s'; with their header."
)


def is_monitoring(path: Path) -> bool:
    """Whether a file is a log of nvidia-smi, DCGM or amd-smi, by its first lines."""
    head = first_bytes(path, _HEAD_BYTES)
    return b"\0" not in head and bool(instrument_of(head.decode("utf-8", "replace").splitlines()))


def with_monitoring(recording: Recording, path: Path) -> Recording:
    """A recording with the samples of a log that overlap it, of the devices it uses."""
    log = read_log(text_lines(path))
    if log.samples.empty:
        raise TraceFormatError(
            f"no line of this {log.instrument} log has both a date with time and a value "
            f"({log.n_lines:,} lines).",
            path=path,
            hint=_ADVICE,
        )
    samples, detail = _placed(log, recording.events, path)
    unread = Repair("monitoring line", log.n_unread, -1, f"cannot be parsed in {path.name}")
    attachment = Attachment(log.instrument, path, len(log.samples), len(samples), detail)
    return replace(
        recording,
        events=replace(recording.events, samples=recording.events.samples.joined(samples)),
        repairs=(*recording.repairs, *((unread,) if log.n_unread else ())),
        attached=(*recording.attached, attachment),
    )


def _interval_ns(log: Log) -> int:
    """Median time between two samples of one field; 0 if no field has two."""
    values = log.samples
    field = values.groupby(["name", "gpu"], sort=False).ngroup().to_numpy()
    order = np.lexsort((values["ts_ns"], field))
    step = np.diff(values["ts_ns"].to_numpy(np.int64)[order])
    step = step[(np.diff(field[order]) == 0) & (step > 0)]
    return int(np.sort(step)[len(step) // 2]) if len(step) else 0


def _placed(log: Log, events: EventTable, path: Path) -> tuple[SampleTable, str]:
    """Samples on the clock of a trace, of its devices, and how they were placed."""
    timed = events.is_host | events.is_device
    if not timed.any():
        return SampleTable(), "not placed: the trace has no events"
    trace = int(events.ts_ns[timed].min()), int(events.end_ns[timed].max())
    if not FIRST_NS <= trace[0] <= LAST_NS:
        return SampleTable(), "not placed: times of the trace do not count from the epoch"
    interval_ns = _interval_ns(log)
    ts_ns = log.samples["ts_ns"].to_numpy(np.int64)
    how = "by wall clock"
    around_ns = int(_AROUND * interval_ns) + log.resolution_ns
    if log.is_local:
        ahead_ns, found_how = zone_of(
            (int(ts_ns.min()), int(ts_ns.max())),
            trace,
            slack_ns=around_ns,
            written_ns=path.stat().st_mtime_ns,
        )
        if ahead_ns is None:
            return SampleTable(), f"not placed: {found_how}"
        ts_ns, how = ts_ns - ahead_ns, f"by wall clock, {found_how}"
    near = (ts_ns >= trace[0] - around_ns) & (ts_ns <= trace[1] + around_ns)
    if not near.any():
        return SampleTable(), f"not placed: {_apart(ts_ns, trace)}"
    device, whose = _parted(log, events, *_devices(log, events))
    known = device > _OTHER
    rows = near & known
    values = log.samples[rows].assign(ts_ns=ts_ns[rows], device=device[rows])
    samples, uncertainty_ns = _samples(log, values, interval_ns)
    notes = [how, whose]
    if interval_ns:
        notes.append(f"sampled every {human_duration(interval_ns)}")
    if uncertainty_ns:
        notes.append(f"times to +-{' to '.join(map(human_duration, uncertainty_ns))}")
    left = {
        "before or after the trace": np.count_nonzero(~near),
        "of other GPUs": np.count_nonzero(near & (device == _OTHER)),
        "of other parts of a GPU": np.count_nonzero(near & (device == _OTHER_PART)),
        "of the whole GPU": np.count_nonzero(near & (device == _WHOLE)),
    }
    notes += [f"{human_count(int(n), 'sample')} {where} left out" for where, n in left.items() if n]
    return samples, "; ".join(notes)


def _apart(ts_ns: I64, trace: tuple[int, int]) -> str:
    """By how much a log misses a trace."""
    early, late = trace[0] - int(ts_ns.max()), int(ts_ns.min()) - trace[1]
    if early > 0:
        return f"the log ends {human_duration(early)} before the trace begins"
    if late > 0:
        return f"the log begins {human_duration(late)} after the trace ends"
    return "the log has a gap where the trace is"


def _devices(log: Log, events: EventTable) -> tuple[npt.NDArray[np.integer[Any]], str]:
    """Device of each value in the trace, -1 for the host, -2 for none; and by what criterion.

    A process may see only some GPUs, and renumber them. Names tell some apart, and the only GPU in
    the log is that of a trace which uses one; all others match by number.
    """
    gpu = log.samples["gpu"].to_numpy(np.int64)
    used = np.unique(events.device[events.is_device]).tolist()
    logged = [int(one) for one in np.unique(gpu) if one >= 0]
    if not used or not logged:
        return gpu, "GPUs as the log numbers them" if logged else "without a GPU's number"
    called = {one.device: one.name for one in events.devices if one.name}
    device_of: dict[int, int] = {-1: -1}
    by = "GPUs by number, which is right unless CUDA_VISIBLE_DEVICES renumbered them"
    for device in used:
        alike = [
            one
            for one in logged
            if not (called.get(device) and log.names.get(one))
            or _same(called[device], log.names[one])
        ]
        if device in alike and len(logged) > 1:
            device_of[device] = device
        elif len(alike) == 1 and len(used) == 1:
            device_of[alike[0]] = device
            by = "GPUs by name" if len(logged) > 1 else "its only GPU is that of the trace"
    if len(device_of) == 1:
        in_trace, in_log = (
            " or ".join(sorted({str(names.get(one) or one) for one in which}))
            for names, which in ((called, used), (log.names, logged))
        )
        by = f"no GPU of the log ({in_log}) is one of the trace ({in_trace})"
    table = pd.Series(gpu).map(device_of).fillna(-2)
    return table.astype(np.int64).to_numpy(), by


def _parted(
    log: Log, events: EventTable, device: npt.NDArray[np.integer[Any]], by: str
) -> tuple[npt.NDArray[np.integer[Any]], str]:
    """The same for a log with parts of a GPU, or a trace of one: Multi-Instance GPU.

    A trace names the profile of its instance, not its number. Clocks are those of the whole GPU, so
    all instances share them; nothing else of the whole GPU tells what one instance does.
    """
    is_part = (log.samples["part"] != "").to_numpy(dtype=bool)
    used = np.unique(events.device[events.is_device]).tolist()
    named = {one.device: _INSTANCE.search(one.name) for one in events.devices}
    instances = {number: one for number in used if (one := named.get(number))}
    if not instances:
        return np.where(is_part, _OTHER_PART, device), by
    rows = pd.Series(list(zip(log.samples["gpu"], log.samples["part"], strict=True)), dtype=object)
    names = log.samples["name"]
    clocks = {one for one in names.unique() if SM_CLOCK.search(one) or MEMORY_CLOCK.search(one)}
    is_clock = names.isin(clocks).to_numpy(dtype=bool)
    found = np.where(is_part, _OTHER_PART, np.where(is_clock, device, _WHOLE))
    for number, instance in instances.items():
        kind = "GPU-CI " if instance[1] else "GPU-I "
        alike = [
            one
            for one in rows[is_part].unique()
            if one[1].startswith(kind)
            and log.profiles.get(one, instance[2]).lower().endswith(instance[2].lower())
        ]
        if len(alike) == 1 and len(instances) == 1:
            found[is_part & rows.isin(alike).to_numpy()] = number
            by = f"{alike[0][1]} of the log is the only one that can be MIG {instance[2]}"
        elif is_part.any():
            by = f"{len(alike)} instances of the log can be MIG {instance[2]}, so none is taken"
    return found, by


def _same(name: str, other: str) -> bool:
    """Whether two names mean one GPU: ``NVIDIA H100 PCIe``, ``H100 PCIe``."""
    one, two = (text.lower().removeprefix("nvidia ").strip() for text in (name, other))
    return one in two or two in one


def _samples(
    log: Log, values: pd.DataFrame, interval_ns: int
) -> tuple[SampleTable, tuple[int, ...]]:
    """Samples by series, and the least and the largest uncertainty of their times."""
    parts = []
    for key, group in values.groupby(["device", "name"], sort=True):
        device, name = int(str(key[0])), str(key[1])
        off_ns = interval_ns // 2 + log.resolution_ns + mean_over_ns(name, interval_ns)
        series = Series(name, str(group["unit"].iloc[0]), device, log.instrument, off_ns)
        parts.append((series, group["ts_ns"], group["value"]))
    offs = sorted({series.uncertainty_ns for series, _, _ in parts})
    return SampleTable.of(parts), tuple(dict.fromkeys((offs[0], offs[-1]))) if offs else ()
