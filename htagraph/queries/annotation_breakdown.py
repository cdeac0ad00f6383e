"""Time under annotations of the host, or under their projections onto the device."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.algorithms.ancestors import sums_under
from htagraph.algorithms.distribution import distribution
from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import GraphError
from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import clipped, device_work
from htagraph.lookup.naming import innermost_at
from htagraph.model.answers import ANNOTATION_BREAKDOWN
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import alphabetical
from htagraph.model.window import Window


def annotation_breakdown(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*", on: str = "host"
) -> pd.DataFrame:
    """Annotated ranges by name, with their device work.

    ::

        cpu 1    | {## forward ##  [launch >a]   }
        stream 7 |                        [gemm <a        ]     of ## forward ##, whenever it runs

    Parameters
    ----------
    window : Window
        Times are clipped to it.
    on : {"host", "device"}
        On the host, device work belongs to the annotations it was launched in. On the device,
        ranges are the profiler's projections (``gpu_user_annotation``), which on one stream last
        from the first to the last work launched in an annotation; work that begins in them on that
        stream belongs to them.

    Returns
    -------
    DataFrame, schema `answers.ANNOTATION_BREAKDOWN`
        Most device time first. ``self_device_ns`` adds up, over all annotations, to the device time
        in any.

    Raises
    ------
    GraphError
        If it does not: a bug in htagraph.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |{forward [launch >a]}{backward }
    ...     stream 7 |             [gemm <a          ]
    ... '''))
    >>> found = annotation_breakdown(dag, dag.span)
    >>> found[["name", "n_ranges", "sum_ns", "n_kernels", "device_ns"]]
           name  n_ranges  sum_ns  n_kernels  device_ns
    0   forward         1   21000          1      19000
    1  backward         1   11000          0          0
    """
    events, work = dag.events, device_work(dag, window)
    kind = EventKind.ANNOTATION if on == "host" else EventKind.DEVICE_ANNOTATION
    every = np.flatnonzero(events.kind == kind)
    if on == "host":
        own, parent = innermost(dag, work.event, (kind,)), dag.parent.astype(np.int64)
    else:
        lane = events.lane[work.event].astype(np.int64)
        own, parent = innermost_at(dag, every, lane, events.ts_ns[work.event])
    inside = own >= 0
    code = np.where(events.kind == kind, events.name, -1).astype(np.int64)
    n_kernels, device_ns, self_ns = _device_time(own[inside], work.dur_ns[inside], code, parent)
    wanted = events.symbols.named(name)[events.name[every]]
    ranges = clipped(dag, every[wanted], window)
    lengths = distribution(events.name[ranges.event].astype(np.int64), ranges.dur_ns)
    names = events.symbols.array[lengths.group]
    rows = np.lexsort((alphabetical(names)[1], -lengths.total, -device_ns[lengths.group]))
    group = lengths.group[rows]
    return ANNOTATION_BREAKDOWN.frame(
        {
            "name": names[rows],
            "n_ranges": lengths.n[rows],
            "sum_ns": lengths.total[rows],
            "mean_ns": lengths.mean[rows],
            "std_ns": lengths.deviation[rows],
            "min_ns": lengths.smallest[rows],
            "max_ns": lengths.largest[rows],
            "n_kernels": n_kernels[group],
            "device_ns": device_ns[group],
            "self_device_ns": self_ns[group],
            "device_share": device_ns[group] / max(int(work.dur_ns.sum()), 1),
        }
    )


def _device_time(own: I64, dur_ns: I64, code: I64, parent: I64) -> tuple[I64, I64, I64]:
    """Count, time and own time of device work by symbol, from the innermost range of each piece."""
    n = int(code.max(initial=-1)) + 1
    count, time = np.bincount(own, minlength=len(code)), sum_by_code(own, dur_ns, len(code))
    self_ns = sum_by_code(code[count > 0], time[count > 0], n)
    if int(self_ns.sum()) != int(dur_ns.sum()):
        raise GraphError("device time by innermost annotation does not add up.")
    return sums_under(parent, code, count, n), sums_under(parent, code, time, n), self_ns
