"""How long kernels, copies and fills take: by class, name, operator, stream or rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from htagraph.algorithms.distribution import distribution
from htagraph.errors import GraphError
from htagraph.lookup.attribution import innermost, track_labels
from htagraph.lookup.clipping import device_work
from htagraph.lookup.work_groups import BY_LAUNCH, Groups, named
from htagraph.model.answers import KERNEL_BREAKDOWN
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.schema import categorical
from htagraph.model.window import Window

_QUANTILES = (0.5, 0.9, 0.99)
"""Those that the columns are named after."""


def _by_class(dag: Dag, events: I64) -> Groups:
    of = dag.classification.kernel_class[events].astype(np.int64)
    return Groups(of, np.array(KernelClass.labels(), dtype=object))


def _by_op(dag: Dag, events: I64) -> Groups:
    return named(dag, innermost(dag.unrolled, events, (EventKind.OP, EventKind.ANNOTATION)))


def _by_stream(dag: Dag, events: I64) -> Groups:
    lanes = np.stack([dag.events.device[events].astype(np.int64), dag.events.stream[events]])
    _, first, code = np.unique(lanes, axis=1, return_index=True, return_inverse=True)
    return Groups(code.reshape(-1).astype(np.int64), track_labels(dag, events[first]))


def _by_rule(dag: Dag, events: I64) -> Groups:
    of = dag.classification
    return Groups(of.rule[events].astype(np.int64), np.array(of.rules, dtype=object))


_GROUPS: Mapping[str, Callable[[Dag, I64], Groups]] = {
    "class": _by_class,
    "name": named,
    "op": _by_op,
    "stream": _by_stream,
    "rule": _by_rule,
}
"""Per way to group: the code of each event, and what the codes are called."""


def kernel_breakdown(dag: Dag, window: Window, *, by: str = "class") -> pd.DataFrame:
    """Number and time of device work by group; the sums add up to all device time in the window.

    Work that crosses a bound of the window counts with the time inside.

    Parameters
    ----------
    by : {"class", "name", "op", "stream", "rule", "shape", "module", "annotation", "step", "phase"}
        ``op`` is the innermost operator or annotation around the launch, ``rule`` the rule that
        chose the class. A ``shape`` is that of the innermost operator's inputs. A ``phase`` is of
        training: forward, recomputed forward (activation checkpointing), backward, optimizer.

    Returns
    -------
    DataFrame, schema `answers.KERNEL_BREAKDOWN`
        Largest first. A group whose work is of several classes has a row for each.

    Raises
    ------
    GraphError
        If the sums do not add up to the device time: a bug in htagraph.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline("stream 7 |[gemm][gemm  ] [Memset]"))
    >>> found = kernel_breakdown(dag, dag.span, by="name")
    >>> found[["group", "class", "n_kernels", "sum_ns", "max_ns"]]
        group    class  n_kernels  sum_ns  max_ns
    0    gemm  compute          2   14000    8000
    1  Memset   memory          1    8000    8000
    """
    work = device_work(dag, window)
    code, names = {**_GROUPS, **BY_LAUNCH}[by](dag, work.event)
    n_classes = len(KernelClass)
    found = distribution(
        code * n_classes + dag.classification.kernel_class[work.event], work.dur_ns, _QUANTILES
    )
    if int(found.total.sum()) != int(work.dur_ns.sum()):
        raise GraphError("the parts of the kernel breakdown do not add up to the device time.")
    group, kernel_class = np.divmod(found.group, n_classes)
    frame = KERNEL_BREAKDOWN.frame(
        {
            "group": names[group],
            "class": categorical(kernel_class, KernelClass.labels()),
            "n_kernels": found.n,
            "sum_ns": found.total,
            "mean_ns": found.mean,
            "std_ns": found.deviation,
            "min_ns": found.smallest,
            "max_ns": found.largest,
            "p50_ns": found.quantiles[0],
            "p90_ns": found.quantiles[1],
            "p99_ns": found.quantiles[2],
            "share": found.total / max(int(found.total.sum()), 1),
        }
    )
    return frame.sort_values(["sum_ns", "group"], ascending=[False, True], ignore_index=True)
