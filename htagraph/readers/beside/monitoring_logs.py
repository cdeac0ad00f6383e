"""Reads logs of monitoring tools: rows below headers, their values and units, and their times.

Times are since 1970, or of a calendar: then the time zone has to be found.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pandas as pd

from htagraph.model.arrays import I64, Bools
from htagraph.model.units import apart_from_unit, human_time

TIME = (
    r"(?:\d{10}(?:\.\d{1,9})?|\d{13}|\d{16}|\d{19}"
    r"|\d{4}[-/]?\d\d[-/]?\d\d[T ]+\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)"
)
"""Pattern of a time: seconds or finer units since 1970, or date and time."""

_NS_PER_S = 10**9
_FACTORS = {10: _NS_PER_S, 13: 10**6, 16: 10**3, 19: 1}
"""Nanoseconds per unit since 1970, by the number of digits."""
FIRST_NS, LAST_NS = 10**18, 41 * 10**17
"""Plausible times: 2001 to 2099."""
_MINUTE_NS = 60 * 10**9
_QUARTERS = (-38, -14, 14, 18, 22, 23, 26, 35, 38, 42, 51)
_ZONES = tuple(sorted({*range(-48, 57, 4), *_QUARTERS}))
"""Inhabited time zones, in quarters of an hour ahead of UTC."""
_WRITTEN_LATE_NS = 5 * 10**9
"""How long after its last line a log may be written (chosen): tools buffer."""


def read_times(texts: pd.Series[str]) -> tuple[I64, Bools, bool, int]:
    """Times since 1970, which of the texts are one, and whether most are local, without a zone.

    With the unit of their last digit. Local times are as if they were UTC, and no others are read
    next to them.
    """
    code, unique = pd.factorize(texts)
    ts_ns, is_time, of_calendar, digit_ns = _of_each(pd.Series(unique, dtype=object))
    n_local = np.count_nonzero((is_time & of_calendar)[code])
    is_local = bool(2 * n_local > np.count_nonzero(is_time[code]))
    is_read = is_time & (of_calendar == is_local)
    resolution_ns = int(digit_ns[is_read].min(initial=_NS_PER_S))
    return ts_ns[code], is_read[code], is_local, resolution_ns


def _of_each(texts: pd.Series[str]) -> tuple[I64, Bools, Bools, I64]:
    """Times one by one: which are read, which are local, and the units of their last digits."""
    found = texts.str.extract(
        r"^(?:(?P<whole>\d{10}|\d{13}|\d{16}|\d{19})|"
        r"(?P<year>\d{4})[-/]?(?P<month>\d\d)[-/]?(?P<day>\d\d)[T ]+"
        r"(?P<clock>\d\d:\d\d:\d\d))(?:[.,](?P<digits>\d{1,9}))? ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?$"
    )
    since = _since_epoch(found["whole"])
    calendar = found["year"] + "-" + found["month"] + "-" + found["day"] + "T" + found["clock"]
    seconds = pd.to_datetime(calendar, format="%Y-%m-%dT%H:%M:%S", errors="coerce")
    of_calendar = (seconds.notna() & seconds.dt.year.between(2001, 2099)).to_numpy()
    stamps = seconds.to_numpy().astype("datetime64[s]").astype(np.int64)
    ts_ns = np.where(of_calendar, np.where(of_calendar, stamps, 0) * _NS_PER_S, since)
    digits = found["digits"].fillna("")
    ts_ns = ts_ns + digits.str.ljust(9, "0").astype(np.int64).to_numpy()
    zone = found["zone"].fillna("")
    ts_ns = ts_ns - _zone_ns(zone)
    is_read = (ts_ns > FIRST_NS) & (ts_ns < LAST_NS)
    is_local = of_calendar & (zone == "").to_numpy()
    finer = found["whole"].str.len().astype(float).fillna(10).to_numpy(np.int64) - 10
    n_digits = np.minimum(finer + digits.str.len().to_numpy(np.int64), 9)
    return ts_ns, is_read, is_local, 10 ** (9 - n_digits)


def _since_epoch(whole: pd.Series[str]) -> I64:
    """Nanoseconds of numbers that count from 1970, 0 for other texts."""
    factor = whole.str.len().map(_FACTORS).fillna(0)
    number = pd.to_numeric(whole, errors="coerce").fillna(0)
    is_usual = number.to_numpy(np.float64) * factor.to_numpy(np.float64) < LAST_NS
    # Whole numbers of 19 digits are not exact as floats.
    exact = whole.where(is_usual & whole.notna().to_numpy(), "0").astype(np.int64)
    return exact.to_numpy() * factor.to_numpy(np.int64)


def _zone_ns(zone: pd.Series[str]) -> I64:
    parts = zone.str.extract(r"^(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)$")
    minutes = pd.to_numeric(parts["hours"]) * 60 + pd.to_numeric(parts["minutes"])
    ahead = minutes.fillna(0).to_numpy(np.int64) * 60 * _NS_PER_S
    return np.where(parts["sign"] == "-", -ahead, ahead)


def zone_of(
    log: tuple[int, int], trace: tuple[int, int], *, slack_ns: int, written_ns: int
) -> tuple[int | None, str]:
    """How far a log of local times is ahead of UTC, None if unknown; and how it was found.

    Its time zone is that in which it best overlaps the trace. A long log overlaps it in several:
    then the time at which the file was last written decides, or else UTC counts, which servers and
    containers use. `slack_ns`: how far beyond its first and last sample the log is valid.
    """
    ahead = np.array(_ZONES, dtype=np.int64) * 15 * _MINUTE_NS
    begin = np.maximum(log[0] - slack_ns - ahead, trace[0])
    end = np.minimum(log[1] + slack_ns - ahead, trace[1])
    overlap = end - begin
    fits = ahead[(overlap == overlap.max()) & (overlap >= 0)]
    if not len(fits):
        when = f"from {human_time(log[0])} to {human_time(log[1])}"
        return None, f"its local times, {when}, overlap the trace in no zone"
    if len(fits) == 1:
        how = "the only zone in which it overlaps the trace"
        return _placed(fits[0], how if np.count_nonzero(overlap >= 0) == 1 else "which fits best")
    last = written_ns - (log[1] - fits)
    at_once = fits[(last > -_WRITTEN_LATE_NS) & (last < _WRITTEN_LATE_NS + slack_ns)]
    if len(at_once) == 1:
        return _placed(at_once[0], "by when the file was last written")
    if (fits == 0).any():
        return _placed(0, f"though {len(fits) - 1} other zones fit as well")
    how = f"its local times overlap the trace in {len(fits)} zones; record it with TZ=UTC"
    return None, how


def _placed(ahead_ns: int, how: str) -> tuple[int, str]:
    minutes = int(ahead_ns) // _MINUTE_NS
    hours, rest = divmod(abs(minutes), 60)
    sign = "-" if minutes < 0 else "+"
    name = "UTC" + (f"{sign}{hours}" + (f":{rest:02}" if rest else "") if minutes else "")
    return int(ahead_ns), f"its local times taken as {name}, {how}"


NOT_SAMPLED = re.compile(
    r"^(index|gpu_?(idx|name|uuid|serial)?|uuid|name|device|count|serial|vbios.*|driver.*|pci\.(?!e)\S*"
    r"|pci_?bus.*|pstate|.*mode|.*_mode|process_name|command|type|pid|time(stamp)?|date|entity|id|host(name)?"
    r"|modelname|gpu_i_(id|profile)|instance|job|pod|namespace|container|display.*|compute_cap|inforom.*|xcp)$",
    re.IGNORECASE,
)
"""Columns that identify a row, and are no measurements."""

_UNITS = (
    (re.compile(r"^DCGM_FI_PROF_\w*(ACTIVE|OCCUPANCY)$"), "ratio"),
    (re.compile(r"^DCGM_FI_PROF_\w*BYTES$"), "B/s"),
    (re.compile(r"^DCGM_FI_DEV_\w*(UTIL|PERCENT)$"), "%"),
    (re.compile(r"^DCGM_FI_DEV_POWER\w*$"), "W"),
    (re.compile(r"^DCGM_FI_DEV_TOTAL_ENERGY\w*$"), "mJ"),
    (re.compile(r"^DCGM_FI_DEV_\w*TEMP$"), "C"),
    (re.compile(r"^DCGM_FI_DEV_\w*CLOCK$"), "MHz"),
    (re.compile(r"^DCGM_FI_DEV_FB_(USED|FREE|TOTAL|RESERVED)$"), "MiB"),
    (re.compile(r"^(GRACT|SMACT|SMOCC|TENSO|DRAMA|FP64A|FP32A|FP16A|INTAC)$"), "ratio"),
    (re.compile(r"^(PCITX|PCIRX|NVLTX|NVLRX)$"), "B/s"),
    (re.compile(r"^(GPUTL|MCUTL|ENCUTL|DECUTL)$"), "%"),
    (re.compile(r"^(POWER|(\w*_)?power)$"), "W"),
    (re.compile(r"^(TMPTR|temperature\.\S+|\w*temperature)$"), "C"),
    (re.compile(r"^(SMCLK|MMCLK)$"), "MHz"),
    (re.compile(r"^(FBUSD|FBFRE|FBTTL)$"), "MiB"),
    (re.compile(r"^\w*activity$"), "%"),
)
_MEANS_OF_A_SECOND = re.compile(
    r"^(utilization\.\S+|sm|mem|enc|dec|jpg|ofa|power\.draw(\.average)?|pwr|GPUTL|MCUTL|POWER"
    r"|DCGM_FI_DEV_(GPU|MEM_COPY|ENC|DEC)_UTIL|DCGM_FI_DEV_POWER_USAGE|\w*activity|\w*power)$"
)
_MEANS_OF_THE_INTERVAL = re.compile(
    r"^(DCGM_FI_PROF_\w+|GRACT|SMACT|SMOCC|TENSO|DRAMA|FP64A|FP32A|FP16A|INTAC"
    r"|PCITX|PCIRX|NVLTX|NVLRX)$"
)


def field_unit(name: str) -> str:
    """Unit of a field whose log has none, ``""`` if unknown."""
    return next((unit for pattern, unit in _UNITS if pattern.match(name)), "")


def mean_over_ns(name: str, interval_ns: int) -> int:
    """The time that a value is averaged over, 0 for an instantaneous value.

    NVML averages utilisation over the last sixth of a second to a second, depending on the product,
    and power over the last second; DCGM's profiling fields are means between two samples.
    """
    if _MEANS_OF_THE_INTERVAL.match(name):
        return interval_ns
    return _NS_PER_S if _MEANS_OF_A_SECOND.match(name) else 0


_COMMA_HEADER = re.compile(
    r"^\"?(?=[^#]*,).*("
    r"\b(utilization|memory|power|temperature|clocks|fan)\.\w|\bDCGM_FI_|\b(gfx_activity|socket_power)\b"
    r"|\bGPU use \(%\)|\bGPU Memory Allocated)",
    re.IGNORECASE,
)
_MONITOR_HEADER = re.compile(r"^#\s*(date|time|gpu)[\s,]", re.IGNORECASE)
_ENTITY_HEADER = re.compile(r"^#\s*entity(\s*id)?\b", re.IGNORECASE)
_HEADERS = (_MONITOR_HEADER, _ENTITY_HEADER, _COMMA_HEADER)
_EXPOSED = re.compile(
    rf"^(?:(?P<before>{TIME})\s+)?(?P<name>DCGM_FI_\w+)\{{(?P<labels>.*)\}}\s+(?P<value>\S+)"
    rf"(?:\s+(?P<after>\d{{13}}))?$"
)
_STAMPED = re.compile(rf"^({TIME})\s+(?=#|GPU|Switch|CPU|ID\b|Id\b)(.*)$")
_HEADERLESS = re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)?,")
_TIME_COLUMNS = ("timestamp", "time", "datetime", "date")
_GPU_COLUMNS = ("index", "gpu", "gpu_id", "gpuid", "gpu_index", "device", "card", "id", "entity")
_NAME_COLUMNS = ("name", "modelname", "gpu_name")
_NO_QUANTITY = 1e30
"""No tool measures as much: a damaged number, whose sums would overflow. Pinned by
`test_monitoring.py::test_a_value_that_nothing_measures_is_none`."""
_PARTS = ("GPU-I", "GPU-CI")
_HEAD_LINES = 40
"""Lines in which a header must appear (chosen)."""


@dataclass(frozen=True)
class Log:
    """Values of a log."""

    instrument: str  # ``nvidia-smi``, ``dcgm``, ``amd-smi``
    # Columns ``ts_ns``, ``gpu`` (-1 for none), ``part``, ``name``, ``unit``, ``value``. The part is
    # a GPU or compute instance (MIG), ``GPU-I 7`` or ``GPU-CI 0``; empty for a whole GPU.
    samples: pd.DataFrame
    is_local: bool  # Local times without a time zone
    resolution_ns: int
    names: Mapping[int, str]  # Names of GPUs, if the log has them
    # Profile of a part of a GPU, such as ``1g.10gb``, if the log has it
    profiles: Mapping[tuple[int, str], str]
    n_lines: int  # Lines that are neither headers nor remarks
    n_unread: int  # Those of them that cannot be parsed


@dataclass
class _Section:
    """Rows below one header."""

    columns: tuple[str, ...]
    units: list[str]
    rows: list[list[str]] = field(default_factory=list)


def instrument_of(lines: Iterable[str]) -> str:
    """The tool that wrote a log, by its first lines; ``""`` for any other text."""
    for raw in islice(lines, _HEAD_LINES):
        line = raw.strip().lstrip("\ufeff")
        stamped = _STAMPED.match(line)
        text = stamped[2] if stamped else line
        if _ENTITY_HEADER.match(text) or _EXPOSED.match(line) or text.startswith("# HELP DCGM_FI"):
            return "dcgm"
        if _MONITOR_HEADER.match(text) or _HEADERLESS.match(text):
            return "nvidia-smi"
        if _COMMA_HEADER.match(text):
            amd = re.search(r"gfx_activity|socket_power|GPU use \(%\)|GPU Memory Alloc", text)
            return "amd-smi" if amd else "dcgm" if "DCGM_FI_" in text else "nvidia-smi"
    return ""


def read_log(lines: Sequence[str]) -> Log:
    """The values of a log."""
    instrument = instrument_of(lines)
    is_exposed = any("DCGM_FI_" in line and "{" in line for line in lines)
    read = _exposed if instrument == "dcgm" and is_exposed else _sections
    sections, n_lines, n_unread = read(lines)
    parts: list[pd.DataFrame] = []
    names: dict[int, str] = {}
    profiles: dict[tuple[int, str], str] = {}
    locals_, resolutions = [], []
    for section in sections:
        frame = pd.DataFrame(section.rows, columns=range(len(section.columns)), dtype=object)
        lower = [name.lower() for name in section.columns]
        texts = _time_texts(frame, lower)
        if texts is None:
            n_unread += len(frame)
            continue
        ts_ns, is_read, is_local, resolution_ns = read_times(texts)
        n_unread += int(np.count_nonzero(~is_read))
        if not is_read.any():
            continue
        frame = frame[is_read]
        gpu, is_gpu = _gpus(frame, lower)
        part = _parts(frame, lower)
        if "gpu_i_profile" in lower:
            known = zip(gpu, part, frame[lower.index("gpu_i_profile")], strict=True)
            profiles |= {(int(one), text): profile for one, text, profile in known if text}
        locals_.append(is_local)
        resolutions.append(resolution_ns)
        at = next((lower.index(name) for name in _NAME_COLUMNS if name in lower), None)
        if at is not None:
            names |= dict(zip(gpu.tolist(), frame[at].tolist(), strict=True))
        for values in _values(frame, section, lower):
            kept = (np.abs(values["value"].to_numpy()) < _NO_QUANTITY) & is_gpu
            placed = values.assign(ts_ns=ts_ns[is_read], gpu=gpu, part=part)
            parts.append(placed[kept])
    none = {"name": "O", "unit": "O", "value": "f8", "ts_ns": "i8", "gpu": "i8", "part": "O"}
    empty = pd.DataFrame(columns=list(none)).astype(none)
    samples = pd.concat(parts, ignore_index=True) if parts else empty
    return Log(
        instrument,
        samples,
        any(locals_),
        max(resolutions, default=0),
        names,
        profiles,
        n_lines,
        n_unread,
    )


def _fields(line: str) -> list[str]:
    if '"' not in line:
        return [value.strip() for value in line.split(",")]
    try:
        return [value.strip() for value in next(csv.reader([line], skipinitialspace=True))]
    except (csv.Error, StopIteration):
        return []


def _sections(lines: Iterable[str]) -> tuple[list[_Section], int, int]:
    """Rows below their headers, lines, and unread ones; a repeated header continues its section."""
    sections: dict[tuple[str, ...], _Section] = {}
    at: _Section | None = None
    is_comma, n_lines, n_unread = False, 0, 0
    for raw in lines:
        line = raw.strip().lstrip("\ufeff")
        stamped = None if "," in line else _STAMPED.match(line)
        text, stamp = (stamped[2], [stamped[1]]) if stamped else (line, [])
        if not text:
            continue
        if not text[0].isdigit() and any(header.match(text) for header in _HEADERS):
            is_comma = not text.startswith("#")
            at = _headed(text, sections)
        elif text.startswith("#") or re.match(r"^i?id$", text, re.IGNORECASE):
            if at is not None and not at.rows:
                units = text.lstrip("# ").replace(",", " ").split()
                at.units[:] = units if len(units) == len(at.columns) else at.units
        elif at is None and not _HEADERLESS.match(text):
            continue  # text before the first header
        else:
            n_lines += 1
            values = _fields(text) if is_comma else text.replace(",", " ").split()
            row = stamp + values if at is not None and at.columns[0] == "stamp" else values
            row = row if stamp or at is None or at.columns[0] != "stamp" else ["", *values]
            if at is None or len(row) < len(at.columns):
                n_unread += 1
            else:
                at.rows.append(row[: len(at.columns)])
    return list(sections.values()), n_lines, n_unread


def _headed(text: str, sections: dict[tuple[str, ...], _Section]) -> _Section:
    if text.startswith("#"):
        entity = _ENTITY_HEADER.match(text)
        names = text.lstrip("# ").replace(",", " ").split()
        if entity:
            after = text[entity.end() :].split()
            names = ["stamp", "entity", "id", *after]
        columns, units = tuple(names), [""] * len(names)
    else:
        names = _fields(text)
        parts = [apart_from_unit(name) for name in names]
        columns = tuple(name for name, _ in parts)
        units = [unit for _, unit in parts]
    return sections.setdefault(columns, _Section(columns, units))


def _exposed(lines: Iterable[str]) -> tuple[list[_Section], int, int]:
    """Rows of a Prometheus exporter's output, with a time before or after each."""
    stripped = [line.strip() for line in lines]
    rows = [line for line in stripped if "DCGM_FI_" in line and "#" not in line]
    found = pd.Series(rows, dtype=object).str.extract(_EXPOSED)
    found = found[found["name"].notna()].fillna("")
    label = found["labels"].str
    names = ("timestamp", "gpu", "modelName", "GPU_I_ID", "GPU_I_PROFILE", "metric", "value")
    section = _Section(names, [""] * len(names))
    gpu = label.extract(r"(?:^|,)\s*gpu=\"(\d+)\"", expand=False).fillna("")
    model = label.extract(r"modelName=\"([^\"]*)\"", expand=False).fillna("")
    part = label.extract(r"GPU_I_ID=\"(\d+)\"", expand=False).fillna("")
    profile = label.extract(r"GPU_I_PROFILE=\"([^\"]*)\"", expand=False).fillna("")
    stamp = found["after"].where(found["after"] != "", found["before"])
    columns = [stamp, gpu, model, part, profile, found["name"], found["value"]]
    section.rows = [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    return [section], len(rows), len(rows) - len(found)


def _time_texts(frame: pd.DataFrame, lower: list[str]) -> pd.Series[str] | None:
    """The column of times, None if there is none."""
    if "date" in lower and "time" in lower:
        return frame[lower.index("date")] + " " + frame[lower.index("time")]
    if lower[0] == "stamp":
        return frame[0]
    found = [lower.index(name) for name in _TIME_COLUMNS if name in lower]
    return frame[found[0]] if found and not lower[0].startswith("#") else None


def _gpus(frame: pd.DataFrame, lower: list[str]) -> tuple[pd.Series[int], pd.Series[bool]]:
    """GPU of each row, -1 for none, and whether the row is about a GPU or a part of one."""
    if {"entity", "id"} <= set(lower):
        number = pd.to_numeric(frame[lower.index("id")], errors="coerce")
        entity = frame[lower.index("entity")]
        is_gpu = entity.isin(("GPU", *_PARTS)) & number.notna()
        number = number.where(entity == "GPU", -1)
    else:
        at = next((lower.index(name) for name in _GPU_COLUMNS if name in lower), None)
        if at is None:
            return pd.Series(-1, index=frame.index), pd.Series(True, index=frame.index)
        text = frame[at].str.extract(r"^(?:card|gpu|nvidia)?\s*(\d{1,4})$", expand=False)
        number = pd.to_numeric(text, errors="coerce")
        is_gpu = number.notna()
    return number.fillna(-1).clip(-1, 9999).astype(np.int64), is_gpu


def _parts(frame: pd.DataFrame, lower: list[str]) -> pd.Series[str]:
    """The instance of a GPU that each row is about, empty for a whole GPU.

    ``dcgmi dmon`` writes ``GPU-I 0`` and numbers instances on its own (NVIDIA DCGM User Guide,
    "Profiling with MIG"); the DCGM exporter has labels ``GPU_I_ID`` and ``GPU_I_PROFILE``.
    """
    if {"entity", "id"} <= set(lower):
        entity = frame[lower.index("entity")]
        return (entity + " " + frame[lower.index("id")]).where(entity.isin(_PARTS), "")
    if "gpu_i_id" in lower:
        number = frame[lower.index("gpu_i_id")]
        return ("GPU-I " + number).where(number != "", "")
    return pd.Series("", index=frame.index, dtype=object)


def _values(frame: pd.DataFrame, section: _Section, lower: list[str]) -> Iterable[pd.DataFrame]:
    """Values by field; NaN for a row without a number."""
    if "metric" in lower and "value" in lower:
        metric = frame[lower.index("metric")]
        units = metric.map({one: field_unit(one) for one in metric.unique()})
        numbers = _numbers(frame[lower.index("value")])
        yield pd.DataFrame({"name": metric, "unit": units, "value": numbers})
        return
    process = frame[lower.index("pid")] if "pid" in lower else None
    for at, (name, unit) in enumerate(zip(section.columns, section.units, strict=True)):
        if NOT_SAMPLED.match(name) or name == "stamp":
            continue
        value = _numbers(frame[at])
        if value.notna().any():
            full = name if process is None else name + " of process " + process
            full_unit = unit if unit not in ("", "-") else field_unit(name)
            yield pd.DataFrame({"name": full, "unit": full_unit, "value": value}, index=frame.index)


def _numbers(texts: pd.Series[str]) -> pd.Series[float]:
    """Numbers, with or without a unit; NaN for anything else: ``[N/A]``, ``-``."""
    code, found = pd.factorize(texts)
    first = pd.Series(found, dtype=object).str.extract(r"^\s*([^\s%]+)", expand=False)
    number = pd.to_numeric(first, errors="coerce").to_numpy(np.float64)
    return pd.Series(number[code], index=texts.index)
