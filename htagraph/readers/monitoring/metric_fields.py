"""Fields of monitoring logs: units, and the time that a value is averaged over."""

from __future__ import annotations

import re

NOT_SAMPLED = re.compile(
    r"^(index|gpu_?(idx|name|uuid|serial)?|uuid|name|device|count|serial|vbios.*|driver.*|pci\.(?!e)\S*"
    r"|pci_?bus.*|pstate|.*mode|.*_mode|process_name|command|type|pid|time(stamp)?|date|entity|id|host(name)?"
    r"|modelname|gpu_i_(id|profile)|instance|job|pod|namespace|container|display.*|compute_cap|inforom.*|xcp)$",
    re.IGNORECASE,
)
"""Columns that identify a row, and are no measurements."""

_NS_PER_S = 10**9
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
    """Unit of a field whose log has none, ``""`` if unknown.

    Examples
    --------
    >>> field_unit("DCGM_FI_PROF_SM_ACTIVE"), field_unit("POWER"), field_unit("XIDER")
    ('ratio', 'W', '')
    """
    return next((unit for pattern, unit in _UNITS if pattern.match(name)), "")


def mean_over_ns(name: str, interval_ns: int) -> int:
    """The time that a value is averaged over, 0 for an instantaneous value.

    NVML averages utilisation over the last sixth of a second to a second, depending on the product,
    and power over the last second; DCGM's profiling fields are means between two samples.

    Parameters
    ----------
    interval_ns : int, unit=ns
        Between two samples.

    Examples
    --------
    >>> mean_over_ns("SMACT", 100), mean_over_ns("sm", 100), mean_over_ns("pclk", 100)
    (100, 1000000000, 0)
    """
    if _MEANS_OF_THE_INTERVAL.match(name):
        return interval_ns
    return _NS_PER_S if _MEANS_OF_A_SECOND.match(name) else 0
