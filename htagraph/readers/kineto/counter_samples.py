"""Counters of a file (``ph: C``) as samples: one series per value of each counter."""

from __future__ import annotations

import math

import numpy as np

from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.model.recording import ArgsReader
from htagraph.model.samples import SampleTable, Series

_INSTRUMENT = "trace counter"


def counter_samples(events: EventTable, args: ArgsReader) -> tuple[SampleTable, int]:
    """Samples of the counters of a trace.

    Returns
    -------
    samples : SampleTable
        Series are named after counter and value, and after the process if several count.
    n_left_out : int
        Values that are not numbers.
    """
    rows = np.flatnonzero(events.kind == EventKind.COUNTER)
    if not len(rows):
        return SampleTable(), 0
    texts, lanes = events.symbols.texts, events.lanes
    lane_of = events.lane[rows].tolist()
    several = len({lanes.pid[lane] for lane in lane_of}) > 1
    n_left_out = 0
    points: dict[str, tuple[list[int], list[float]]] = {}
    for ts_ns, name, lane, values in zip(
        events.ts_ns[rows].tolist(),
        events.name[rows].tolist(),
        lane_of,
        args.decode(rows),
        strict=True,
    ):
        where = f" ({lanes.process[lane] or lanes.pid[lane]})" if several else ""
        for key, value in values.items():
            number = _number(value)
            if math.isfinite(number):
                label = texts[name] if len(values) == 1 else f"{texts[name]}: {key}"
                times, numbers = points.setdefault(label + where, ([], []))
                times.append(ts_ns)
                numbers.append(number)
            else:
                n_left_out += 1
    samples = SampleTable.of(
        [
            (Series(name, instrument=_INSTRUMENT), times, numbers)
            for name, (times, numbers) in points.items()
        ]
    )
    return samples, n_left_out


def _number(value: object) -> float:
    """A value as a float, NaN if it is no number or too large."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan
