"""Samples of counters that another instrument took while a trace was recorded.

Hardware samplers and monitoring write values, not events: SM activity ten thousand times a second,
the clock of a device once a second. They are not nodes of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import F64, I32, I64, Frozen, brief, empty


@dataclass(frozen=True)
class Series:
    """One counter of one device, sampled over time."""

    name: str  # As the instrument names it: ``SMs Active``, ``power.draw``
    unit: str = ""  # ``%``, ``W``, ``MHz``; ``""`` for none
    device: int = -1  # -1 for the host
    instrument: str = ""  # ``nvidia-smi``, ``dcgm``, ``nsys GPU metrics``
    uncertainty_ns: int = 0  # Times may be off by this much, either way; 0 on the trace's clock


@brief
@dataclass(frozen=True)
class SampleTable(Frozen):
    """Samples of all series: by series, then by time."""

    ts_ns: I64 = field(default_factory=empty(np.int64))  # On the clock of the events
    value: F64 = field(default_factory=empty(np.float64))
    series: I32 = field(default_factory=empty(np.int32))  # Position in `all_series`; ascending
    all_series: tuple[Series, ...] = ()

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.ts_ns)

    @classmethod
    def of(cls, parts: Sequence[tuple[Series, npt.ArrayLike, npt.ArrayLike]]) -> SampleTable:
        """A table of series, each with its times and values, in any order of time."""
        if not parts:
            return cls()
        times = [np.asarray(ts_ns, dtype=np.int64) for _, ts_ns, _ in parts]
        values = [np.asarray(value, dtype=np.float64) for _, _, value in parts]
        orders = [np.argsort(ts_ns, kind="stable") for ts_ns in times]
        return cls(
            np.concatenate([ts_ns[order] for ts_ns, order in zip(times, orders, strict=True)]),
            np.concatenate([value[order] for value, order in zip(values, orders, strict=True)]),
            np.repeat(np.arange(len(parts), dtype=np.int32), [len(ts_ns) for ts_ns in times]),
            tuple(series for series, _, _ in parts),
        )

    def joined(self, other: SampleTable) -> SampleTable:
        """These samples and others, whose series come last."""
        return SampleTable(
            np.concatenate([self.ts_ns, other.ts_ns]),
            np.concatenate([self.value, other.value]),
            np.concatenate([self.series, other.series + np.int32(len(self.all_series))]),
            self.all_series + other.all_series,
        )
