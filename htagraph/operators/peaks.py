"""What devices can do at most: dense peaks by element type, memory bandwidth, cache and links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from htagraph.errors import QueryError, one_of
from htagraph.model.devices import DeviceProperties
from htagraph.model.settings import here, project_settings

_TERA, _GIGA, _MEGA = 1e12, 1e9, 1e6


class DevicePeaks(NamedTuple):
    """The limits of a device.

    Parameters
    ----------
    matrix_tflops : mapping of str to float
        Dense peak of matrix units by element type; ``tf32``: products of fp32, rounded.
    fp32_tflops : float
        Of its vector units.
    memory_tbps, cache_mb, link_gbps : float
        Memory bandwidth, last-level cache, and bandwidth to other devices in both directions.
    host_gbps : float
        Bandwidth to the host in one direction.
    source : str
        Where the numbers are from.
    """

    name: str
    matrix_tflops: dict[str, float]
    fp32_tflops: float
    memory_tbps: float
    cache_mb: float
    link_gbps: float
    host_gbps: float
    source: str

    def flops_per_s(self, dtype: str) -> float:
        """Dense peak of products of an element type; 0 for one that the device does not multiply.

        Products of fp32 may run as ``tf32``.
        """
        if dtype == "fp32":
            return self.fp32_tflops * _TERA
        return self.matrix_tflops.get(dtype, 0.0) * _TERA

    @property
    def bytes_per_s(self) -> float:
        """Memory bandwidth."""
        return self.memory_tbps * _TERA

    @property
    def host_bytes_per_s(self) -> float:
        """Bandwidth to the host in one direction."""
        return self.host_gbps * _GIGA

    @property
    def cache_bytes(self) -> float:
        """Size of the last-level cache."""
        return self.cache_mb * _MEGA

    def at_clocks(self, sm_mhz: float, memory_mhz: float) -> DevicePeaks:
        """The peaks at measured clocks, NaN for one that is unknown: roofs move with the clock.

        Those of matrix units and vector units move with the clock of the SMs, memory with its own.
        """
        build = _BUILDS.get(self.name.partition(" MIG")[0])
        if build is None:
            return self
        compute = _ratio(sm_mhz, build.sm_mhz)
        memory = _ratio(memory_mhz, build.memory_mhz)
        at = [f"at {sm_mhz:,.0f} MHz"] if compute else []
        at += [f"memory at {memory_mhz:,.0f} MHz"] if memory else []
        if not at:
            return self
        return self._replace(
            name=f"{self.name} {', '.join(at)}",
            matrix_tflops={one: peak * (compute or 1) for one, peak in self.matrix_tflops.items()},
            fp32_tflops=self.fp32_tflops * (compute or 1),
            memory_tbps=self.memory_tbps * (memory or 1),
            source=f"{self.source}, scaled by the sampled clock",
        )


class _Build(NamedTuple):
    """What a device is built of, and the clocks of its peaks; 0 if unknown."""

    n_sms: int
    memory_gb: int
    sm_mhz: int
    memory_mhz: int


def _ratio(mhz: float, of_mhz: int) -> float:
    """A clock by that of the peaks; 0 if unknown, or not one that a device runs at."""
    ratio = mhz / of_mhz if of_mhz else 0.0
    return ratio if 0 < ratio < _FASTEST else 0.0


def _peaks(  # noqa: PLR0917  one line a device
    name: str,
    half: float,
    tf32: float,
    fp32: float,
    fp8: float,
    memory: float,
    cache: float,
    link: float,
    host: float,
    source: str,
    *,
    has_bf16: bool = True,
) -> DevicePeaks:
    matrix = {"fp16": half, "bf16": half if has_bf16 else 0.0, "tf32": tf32, "fp8": fp8}
    known = {dtype: tflops for dtype, tflops in matrix.items() if tflops}
    return DevicePeaks(name, known, fp32, memory, cache, link, host, source)


_NVIDIA = "NVIDIA data sheet"
_AMD = "AMD data sheet"
_UNCHECKED = "data sheet, from memory"

_H100 = _peaks("H100 SXM", 989.4, 494.7, 66.9, 1978.9, 3.35, 50, 900, 64, _NVIDIA)
_A100 = _peaks("A100 SXM 40 GB", 312, 156, 19.5, 0, 1.555, 40, 600, 32, _NVIDIA)
_V100 = _peaks("V100 SXM2", 125, 0, 15.7, 0, 0.9, 6, 300, 16, _UNCHECKED, has_bf16=False)
_MI300X = _peaks("MI300X", 1307.4, 653.7, 163.4, 2614.9, 5.3, 256, 896, 64, _AMD)
_MI210 = _peaks("MI210", 181, 0, 45.3, 0, 1.6, 8, 300, 32, _UNCHECKED)

_LARGE_A100 = _A100._replace(name="A100 80 GB", memory_tbps=2.039)
_LARGE_A100_BYTES = 60e9
"""Memory from which an A100 is one of 80 GB: its memory is faster."""

_FASTEST = 2.0
"""No device runs at twice the clock of its peaks: such a value is DCGM's mark for none."""

_BUILDS = {
    "H100 SXM": _Build(132, 80, 1830, 2619),
    "H100 PCIe": _Build(114, 80, 1620, 1593),
    "H100 NVL": _Build(132, 94, 0, 0),
    "H800 SXM": _Build(132, 80, 1830, 2619),
    "H800 PCIe": _Build(114, 80, 1620, 1593),
    "H200": _Build(132, 141, 1830, 0),
    "B200": _Build(148, 180, 0, 0),
    "A100 SXM 40 GB": _Build(108, 40, 1410, 1215),
    "A100 80 GB": _Build(108, 80, 1410, 1593),
    "V100 SXM2": _Build(80, 0, 1530, 877),
    "RTX 4090": _Build(128, 0, 2520, 10_501),
    "T4": _Build(40, 0, 1590, 5_001),
    "MI210": _Build(104, 0, 1700, 1600),
    "MI300X": _Build(304, 0, 2100, 1300),
    "MI325X": _Build(304, 0, 2100, 0),
}
"""By name of the peaks. A clock is that from which the peak follows: SMs times operations per clock
and SM, or bus width times twice the clock (test_peaks computes both)."""

_INSTANCE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.(\d+)gb)", re.IGNORECASE)
"""A Multi-Instance GPU as CUDA names it: ``NVIDIA H100 80GB HBM3 MIG 1g.10gb``; with compute
instances, ``MIG 1c.3g.40gb``. NVIDIA MIG User Guide, "Device Names"."""
_MEMORY_SLICES = 8
"""Slices of memory and cache of a device with MIG (NVIDIA MIG User Guide, "Partitioning")."""
_NAMED_GB = re.compile(r"(\d{1,4})GB")

_BY_NAME = (
    (r"H100 PCIe", _peaks("H100 PCIe", 756, 378, 51, 1513, 2.0, 50, 600, 64, _NVIDIA)),
    (r"H100 NVL", _peaks("H100 NVL", 835.5, 417.8, 60, 1671, 3.9, 50, 600, 64, _UNCHECKED)),
    (r"H100", _H100),
    (r"H800 PCIe", _peaks("H800 PCIe", 756, 378, 51, 1513, 2.0, 50, 400, 64, _UNCHECKED)),
    (r"H800", _H100._replace(name="H800 SXM", link_gbps=400, source="public reports")),
    (r"H200", _H100._replace(name="H200", memory_tbps=4.8, source=_UNCHECKED)),
    (r"\bB200", _peaks("B200", 2250, 1100, 80, 4500, 8.0, 126, 1800, 64, _NVIDIA)),
    (r"A100.*80GB", _LARGE_A100),
    (r"A100", _A100),
    (r"V100-PCIE", _V100._replace(name="V100 PCIe", matrix_tflops={"fp16": 112.0})),
    (r"V100", _V100),
    (r"RTX 4090", _peaks("RTX 4090", 165.2, 82.6, 82.6, 330.3, 1.008, 72, 0, 32, _UNCHECKED)),
    (r"Tesla T4", _peaks("T4", 65, 0, 8.1, 0, 0.32, 4, 0, 16, _UNCHECKED, has_bf16=False)),
    (r"MI210", _MI210),
    (r"MI300X", _MI300X),
    (r"MI325X", _MI300X._replace(name="MI325X", memory_tbps=6.0, source=_UNCHECKED)),
    (r"MI355X", _peaks("MI355X", 2500, 0, 157.3, 5000, 8.0, 256, 1075, 64, _UNCHECKED)),
)
"""Dense peaks by name; the first that is found. Names of AMD devices may be empty or general."""

_AMD_BY_UNITS = {304: _MI300X, 104: _MI210._replace(name="MI210 or MI250")}
"""By compute units, where an AMD device has no name of its own."""

_AMD_WARP = 64
"""Threads of a wavefront."""

_GIVEN: dict[str, DevicePeaks] = {}
"""Peaks that a user gave, by a part of the name."""

_HOST_GBPS = 64.0
"""Bandwidth to the host unless it is given: PCIe 5.0 with 16 lanes."""

_RATES = dict.fromkeys(("memory_tbps", "fp32_tflops", "cache_mb", "link_gbps"), 0.0)
_RATES |= {"host_gbps": _HOST_GBPS}
"""What peaks have besides element types, and what they are unless given."""

_MULTIPLIED = ("fp64", "tf32", "bf16", "fp16", "fp8", "int8")
"""Element types that matrix units multiply."""


def device_peaks(
    name: str,
    *,
    memory_tbps: float,
    fp32_tflops: float = 0.0,
    cache_mb: float = 0.0,
    link_gbps: float = 0.0,
    host_gbps: float = _HOST_GBPS,
    **tflops: float,
) -> DevicePeaks:
    """Give the peaks of a device that is not known, or other ones, in this process.

    Without code, and in processes that read ranks of a job, the same numbers in the nearest
    pyproject.toml, in ``[tool.htagraph.peaks."GPU 9000"]``.

    Parameters
    ----------
    name : str
        A part of the name that profilers record: ``"H100 PCIe"``.
    memory_tbps : float
        Memory bandwidth in 1e12 bytes per second.
    fp32_tflops : float
        Peak of its vector units.
    cache_mb, link_gbps, host_gbps : float
        Last-level cache; bandwidth to other devices, in both directions, and to the host, in one.
    **tflops : float
        Dense peaks of matrix units by element type: ``bf16=989``, ``tf32``, ``fp8`` …

    Returns
    -------
    DevicePeaks

    Raises
    ------
    QueryError
        If an element type is not known, or a number is not positive.

    Examples
    --------
    >>> import htagraph as hg
    >>> hg.device_peaks("GPU 9000", memory_tbps=2.0, bf16=400).flops_per_s("bf16")
    400000000000000.0
    """
    rates = {"fp32_tflops": fp32_tflops, "cache_mb": cache_mb, "link_gbps": link_gbps}
    rates |= {"memory_tbps": memory_tbps, "host_gbps": host_gbps}
    _GIVEN[name] = _given(name, rates | tflops)
    return _GIVEN[name]


def _given(name: str, numbers: Mapping[str, Any], place: str = "hg.device_peaks") -> DevicePeaks:
    """Peaks from numbers by name, which are checked."""
    known = (*_RATES, *_MULTIPLIED)
    for key, value in numbers.items():
        if key not in known:
            raise QueryError(f"{place}: {name!r} has no {key!r}.", hint=one_of(key, known))
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf"):
            raise QueryError(f"{place}: {key} of {name!r} must be a number >= 0, not {value!r}.")
    if not numbers.get("memory_tbps"):
        raise QueryError(
            f"{place}: {name!r} needs its memory bandwidth.",
            hint="memory_tbps = 3.35, for example.",
        )
    rates = {key: float(numbers.get(key, default)) for key, default in _RATES.items()}
    tflops = {key: float(value) for key, value in numbers.items() if key in _MULTIPLIED}
    return DevicePeaks(name, tflops, **rates, source="given")


@cache
def _of_project(folder: Path) -> dict[str, DevicePeaks]:
    """Peaks in the nearest pyproject.toml; none if it cannot be read, which others say."""
    try:
        found = project_settings(folder)
    except ValueError:
        return {}
    peaks = found[1].get("peaks", {}) if found else {}
    if found is None or not isinstance(peaks, dict):
        return {}
    place = f"{found[0]}, [tool.htagraph.peaks]"
    for name, numbers in peaks.items():
        if not isinstance(numbers, dict):
            raise QueryError(
                f"{place}: {name!r} is no table.", hint=f'[tool.htagraph.peaks."{name}"].'
            )
    return {name: _given(name, numbers, place) for name, numbers in peaks.items()}


def peaks_of(device: DeviceProperties) -> DevicePeaks | None:
    """The peaks of a device, by its name, or its compute units; None if it is not known.

    An instance of a GPU (MIG) has its share of the SMs, and of the slices of memory and cache.
    """
    all_given = _GIVEN | {
        name: peaks for name, peaks in _of_project(here()).items() if name not in _GIVEN
    }
    given = (peaks for name, peaks in all_given.items() if name in device.name)
    if (own := next(given, None)) is not None:
        return own
    for pattern, peaks in _BY_NAME:
        if re.search(pattern, device.name):
            is_large = peaks is _A100 and device.memory_bytes > _LARGE_A100_BYTES
            whole = _LARGE_A100 if is_large else peaks
            part = _INSTANCE.search(device.name)
            return whole if part is None else _of_instance(whole, device, part)
    is_amd = device.warp_size == _AMD_WARP or "AMD" in device.name
    return _AMD_BY_UNITS.get(device.n_sms) if is_amd else None


def _of_instance(
    whole: DevicePeaks, device: DeviceProperties, part: re.Match[str]
) -> DevicePeaks | None:
    """The peaks of an instance of a GPU; None if its SMs or the size of the GPU are unknown.

    Instances do not reach other GPUs directly (NVIDIA MIG User Guide, "Application
    Considerations"), and share the link to the host.
    """
    build, named = _BUILDS.get(whole.name), _NAMED_GB.search(device.name)
    memory_gb = int(named[1]) if named else build.memory_gb if build else 0
    if build is None or not device.n_sms or not memory_gb:
        return None
    compute = min(device.n_sms / build.n_sms, 1.0)
    n_slices = max(round(_MEMORY_SLICES * int(part[2]) / memory_gb), 1)
    memory = min(n_slices, _MEMORY_SLICES) / _MEMORY_SLICES
    return whole._replace(
        name=f"{whole.name} MIG {part[1].lower()}",
        matrix_tflops={one: peak * compute for one, peak in whole.matrix_tflops.items()},
        fp32_tflops=whole.fp32_tflops * compute,
        memory_tbps=whole.memory_tbps * memory,
        cache_mb=whole.cache_mb * memory,
        link_gbps=0.0,
    )
