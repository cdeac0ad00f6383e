"""Hardware counters of an export that were sampled (``nsys profile --gpu-metrics-devices``)."""

from __future__ import annotations

import numpy as np

from htagraph.model.samples import SampleTable, Series
from htagraph.model.units import apart_from_unit
from htagraph.readers.nsys.devices import device_of_gpu
from htagraph.readers.nsys.export import Export, Process
from htagraph.readers.nsys.table_rows import Reading

__all__ = ["METRICS", "gpu_metrics"]

METRICS = "GPU_METRICS"
_NAMES = "TARGET_INFO_GPU_METRICS"
_INSTRUMENT = "nsys GPU metrics"
_GPU_BITS = 0xFF  # of `typeId`


def gpu_metrics(
    export: Export, process: Process, used: frozenset[int], base_time_ns: int, reading: Reading
) -> SampleTable:
    """Samples of the devices that a process uses.

    Parameters
    ----------
    used : frozenset of int
        Devices whose samples are wanted.
    base_time_ns : int, unit=ns
        Added to every time.
    """
    wanted = ("timestamp", "typeId", "metricId", "value")
    if not export.has(METRICS, *wanted):
        reading.skip(METRICS, export.count(METRICS) if export.has(METRICS) else 0)
        return SampleTable()
    found = reading.with_times(export.integers(METRICS, wanted), "timestamp")
    names = _metric_names(export)
    devices = device_of_gpu(export, process)
    parts = []
    sources, of_source = np.unique(found["typeId"], return_inverse=True)
    metrics, of_metric = np.unique(found["metricId"], return_inverse=True)
    pairs, places = np.unique(of_source * len(metrics) + of_metric, return_inverse=True)
    for position, pair in enumerate(pairs.tolist()):
        source, metric = int(sources[pair // len(metrics)]), int(metrics[pair % len(metrics)])
        rows = np.flatnonzero(places == position)
        gpu = source & _GPU_BITS
        device = devices.get(gpu, gpu)
        if device not in used:
            reading.skip("GPU_METRICS of other devices", len(rows))
            continue
        text = names.get((source, metric), f"metric {metric}")
        name, unit = apart_from_unit(text, "[]")
        series = Series(name, unit.removeprefix("Throughput "), device, _INSTRUMENT)
        parts.append((series, found["timestamp"][rows] + base_time_ns, found["value"][rows]))
    return SampleTable.of(parts)


def _metric_names(export: Export) -> dict[tuple[int, int], str]:
    """Name of each metric of each source."""
    if not export.has(_NAMES, "typeId", "metricId", "metricName"):
        return {}
    rows = export.rows(f"SELECT typeId, metricId, metricName FROM {_NAMES}")  # noqa: S608
    return {(source, metric): str(name) for source, metric, name in rows}
