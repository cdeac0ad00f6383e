"""How far operators are from what the device can do: FLOP/s and bytes/s against their roof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import GraphError
from htagraph.lookup.attribution import host_of, innermost
from htagraph.lookup.clipping import device_work
from htagraph.lookup.naming import MODULE, frames_at
from htagraph.lookup.operator_roofs import Limit, OperatorRoofs, operator_roofs
from htagraph.lookup.operator_work import call_of
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.answers import ROOFLINE
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.schema import categorical
from htagraph.model.window import Window
from htagraph.operators.work import Family

__all__ = ["by_shape", "main_limit", "roofline"]

I64 = npt.NDArray[np.int64]
Text = npt.NDArray[np.object_]
By = Literal["op", "shape", "kernel", "module", "step", "family"]

_NS = 1e9


class _Groups(NamedTuple):
    """The group of each piece of device work, and what the groups are called."""

    code: I64
    names: Text


def roofline(dag: Dag, window: Window, *, by: By = "op") -> pd.DataFrame:
    """Calls, time, operations and bytes of operators, and the time that they need at their roof.

    Parameters
    ----------
    by : {"op", "shape", "kernel", "module", "step", "family"}
        Operator, operator with the shapes of its inputs, kernel, innermost module, step of its
        launch, or family of models.

    Returns
    -------
    DataFrame, schema `answers.ROOFLINE`
        Largest excess over the roof first. ``device_ns`` adds up to all device time in the window.
        Work without a model has a row of its own in each group, with 0 calls.

    Notes
    -----
    The roof of a call is the longest of its operations at the dense peak of their type, its
    compulsory bytes at memory bandwidth, and the shortest kernel of the trace (Williams, Waterman
    and Patterson 2009). Operations count a multiply-add as 2; only matrix units are counted.
    """
    work = device_work(dag, window)
    roofs = operator_roofs(dag, work.event, work.dur_ns)
    joined = roofs.work
    groups = _GROUPS[by](dag, work.event, roofs)
    n_groups, is_modelled = len(groups.names), joined.call >= 0
    code = groups.code * 2 + is_modelled
    # A call counts in the group of its longest kernel, so that its work counts once.
    of_call = np.full(len(joined.event), -1, dtype=np.int64)
    order = np.argsort(work.dur_ns, kind="stable")
    order = order[is_modelled[order]]
    of_call[joined.call[order]] = code[order]
    size = 2 * n_groups
    device_ns = sum_by_code(code, work.dur_ns, size)
    flops, low, high, roof_ns = (
        np.bincount(of_call, weights=values.astype(np.float64), minlength=size)
        for values in (
            joined.of_calls("flops"),
            joined.of_calls("bytes_low"),
            joined.of_calls("bytes_high"),
            roofs.roof_ns,
        )
    )
    excess = np.bincount(of_call, weights=roofs.excess_ns, minlength=size)
    kept = np.flatnonzero(np.bincount(code, minlength=size))
    if int(device_ns.sum()) != int(work.dur_ns.sum()):
        raise GraphError("the device time of the roofline does not add up.")
    seconds = np.maximum(device_ns[kept], 1) / _NS
    known = (kept % 2 == 1) & roofs.has_peaks
    limit = main_limit(of_call, roofs, size)[kept]
    frame = ROOFLINE.frame(
        {
            "group": groups.names[kept // 2],
            "n_calls": np.bincount(of_call, minlength=size)[kept],
            "n_kernels": np.bincount(code, minlength=size)[kept],
            "device_ns": device_ns[kept],
            "device_share": device_ns[kept] / max(int(work.dur_ns.sum()), 1),
            "gflop": flops[kept] / 1e9,
            "bytes_low": low[kept].astype(np.int64),
            "bytes_high": high[kept].astype(np.int64),
            "tflops_per_s": flops[kept] / seconds / 1e12,
            "gb_per_s": low[kept] / seconds / 1e9,
            "flop_per_byte": np.divide(
                flops[kept], low[kept], out=np.full(len(kept), np.nan), where=low[kept] > 0
            ),
            "roof_ns": np.where(known, roof_ns[kept], np.nan),
            "roof_share": np.where(known, roof_ns[kept] / np.maximum(device_ns[kept], 1), np.nan),
            "excess_ns": np.where(known, excess[kept], 0).astype(np.int64),
            "limit": categorical(np.where(known, limit, Limit.UNKNOWN), Limit.labels()),
        }
    )
    return frame.sort_values(
        ["excess_ns", "device_ns", "group"], ascending=[False, False, True], ignore_index=True
    )


def main_limit(of_call: I64, roofs: OperatorRoofs, n_groups: int) -> I64:
    """The limit of most time at the roof, of each group."""
    n = len(Limit)
    time = np.bincount(
        of_call * n + roofs.limit, weights=roofs.roof_ns + 1.0, minlength=n_groups * n
    )
    return np.asarray(time.reshape(n_groups, n).argmax(axis=1), dtype=np.int64)


def _operators(dag: Dag, work: I64, roofs: OperatorRoofs) -> I64:
    """The operator of each piece of work: with a model, else the innermost; -1 for none."""
    event = gather(roofs.work.event, roofs.work.call)
    return np.where(event >= 0, event, innermost(dag, work, (EventKind.OP,)))


def _by_op(dag: Dag, work: I64, roofs: OperatorRoofs) -> _Groups:
    code = gather(dag.events.name, _operators(dag, work, roofs), len(dag.events.symbols))
    return _Groups(code.astype(np.int64), np.append(dag.events.symbols.array, ""))


def by_shape(dag: Dag, work: I64, roofs: OperatorRoofs) -> _Groups:
    """Device work by operator and the shapes of its inputs."""
    event = _operators(dag, work, roofs)
    known = np.unique(event[event >= 0])
    inputs = [dag.events.column(name)[known] for name in ("input_dims", "input_types")]
    keys = np.stack([dag.events.name[known], *inputs]) if len(known) else np.empty((3, 0))
    _, first, kind = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    calls = (call_of(dag, one) for one in known[first].tolist())
    names = dag.events.names(known[first])
    labels = [call.label if call else name for call, name in zip(calls, names, strict=True)]
    code = np.full(len(dag.events), len(labels), dtype=np.int64)
    code[known] = kind.reshape(-1)
    # Shapes that differ only outside tensors have one label.
    one, text = pd.factorize(np.array([*labels, ""], dtype=object))
    return _Groups(one[gather(code, event, len(labels))].astype(np.int64), np.asarray(text))


def _by_kernel(dag: Dag, work: I64, roofs: OperatorRoofs) -> _Groups:
    del roofs
    return _Groups(dag.events.name[work].astype(np.int64), dag.events.symbols.array)


def _by_module(dag: Dag, work: I64, roofs: OperatorRoofs) -> _Groups:
    del roofs
    host = host_of(dag, work)
    lane = gather(dag.events.lane.astype(np.int64), host)
    frame = frames_at(dag, lane, gather(dag.events.ts_ns, host, 0), MODULE)
    code = gather(dag.events.name, frame, len(dag.events.symbols))
    return _Groups(code.astype(np.int64), np.append(dag.events.symbols.array, ""))


def _by_step(dag: Dag, work: I64, roofs: OperatorRoofs) -> _Groups:
    del roofs
    steps = find_steps(dag.events)
    at = step_at(steps, gather(dag.events.ts_ns, host_of(dag, work), -1))
    names = np.append(steps["name"].to_numpy(object), "")
    return _Groups(np.where(at >= 0, at, len(names) - 1), names)


def _by_family(dag: Dag, work: I64, roofs: OperatorRoofs) -> _Groups:
    del dag, work
    family = gather(roofs.work.of_calls("family"), roofs.work.call, len(Family))
    return _Groups(
        family.astype(np.int64), np.array([*(one.label for one in Family), ""], dtype=object)
    )


_GROUPS: dict[str, Callable[[Dag, I64, OperatorRoofs], _Groups]] = {
    "op": _by_op,
    "shape": by_shape,
    "kernel": _by_kernel,
    "module": _by_module,
    "step": _by_step,
    "family": _by_family,
}
