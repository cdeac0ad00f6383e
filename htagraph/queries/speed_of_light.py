"""What the window would gain if operators ran at the roof of their device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.lookup.clipping import device_work
from htagraph.lookup.operator_roofs import Limit, operator_roofs
from htagraph.lookup.work_groups import by_shape
from htagraph.model.answers import SPEED_OF_LIGHT
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window
from htagraph.operators.work import Family
from htagraph.queries.roofline import main_limit
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.removal import Removal
from htagraph.replay.replay import Replay

EVERYTHING = "all operators"
"""The group of all operators with a model."""


def speed_of_light(dag: Dag, window: Window) -> pd.DataFrame:
    """How much shorter the window would be with each operator at its roof, and with all of them.

    Returns
    -------
    DataFrame, schema `answers.SPEED_OF_LIGHT`
        Operators by shape, largest cost first, after a row for all. Empty if no operator has a
        model or the device's peaks are not known.

    Notes
    -----
    The window is replayed with the device work of each operator at its roof (`roofline`), as by
    `at_roof`; at the share of the roof that the best operator of its family reaches in this trace,
    which is attainable; and with products of fp32 in TF32, as by `allow_tf32`. Kernels alone get
    faster: launches and CPU code stay.
    """
    work = device_work(dag, window)
    roofs = operator_roofs(dag, work.event, work.dur_ns)
    if not roofs.has_peaks:
        return SPEED_OF_LIGHT.empty()
    joined, groups = roofs.work, by_shape(dag, work.event, roofs.work)
    is_modelled = joined.call >= 0
    of_call = np.full(len(joined.event), -1, dtype=np.int64)
    of_call[joined.call[is_modelled]] = groups.code[is_modelled]
    present, of_call = np.unique(of_call, return_inverse=True)
    n = len(present)
    device_ns = sum_by_code(of_call, roofs.device_ns, n)
    roof_ns = np.bincount(of_call, weights=roofs.roof_ns, minlength=n)
    family = np.zeros(n, dtype=np.int64)
    family[of_call] = joined.of_calls("family")
    share = roof_ns / np.maximum(device_ns, 1)
    limit = main_limit(of_call, roofs, n)
    attainable_ns = np.minimum(roof_ns / _best(share, family, limit), device_ns)
    replay = Rehearsal(dag, window).expected.replay
    group = np.full(len(dag.events), -1, dtype=np.int64)
    group[work.event] = gather(of_call, joined.call)
    tf32_ns = np.bincount(of_call, weights=roofs.tf32_ns, minlength=n)
    costs_ns = [
        _costs_ns(window, replay, group, 1 - least / np.maximum(device_ns, 1))
        for least in (roof_ns, attainable_ns, tf32_ns)
    ]
    frame = SPEED_OF_LIGHT.frame(
        {
            "group": [EVERYTHING, *groups.names[present]],
            "family": categorical([-1, *family], [one.label for one in Family]),
            "n_calls": [len(of_call), *np.bincount(of_call, minlength=n)],
            "device_ns": [int(device_ns.sum()), *device_ns],
            "roof_ns": [roof_ns.sum(), *roof_ns],
            "roof_share": [
                roof_ns.sum() / max(int(device_ns.sum()), 1),
                *np.where(limit == Limit.UNKNOWN, np.nan, share),
            ],
            "limit": categorical(
                [*main_limit(np.zeros_like(of_call), roofs, 1), *limit], Limit.labels()
            ),
            "cost_ns": costs_ns[0],
            "cost_share": costs_ns[0] / max(window.dur_ns, 1),
            "attainable_ns": costs_ns[1],
            "tf32_ns": costs_ns[2],
        }
    )
    rest = frame.iloc[1:].sort_values(
        ["cost_ns", "device_ns", "group"], ascending=[False, False, True]
    )
    return pd.concat([frame.iloc[:1], rest], ignore_index=True)


def _best(share: F64, family: I64, limit: I64) -> F64:
    """The largest share of the roof in the family of each operator; 1 where none is comparable.

    Work in the cache is faster than its roof, and launch-sized work says nothing of larger work.
    """
    best = np.zeros(len(Family))
    comparable = np.isin(limit, (Limit.COMPUTE, Limit.FP32, Limit.MEMORY, Limit.HOST_LINK))
    np.maximum.at(best, family[comparable], share[comparable])
    return np.where(best > 0, best, 1.0)[family]


def _costs_ns(window: Window, replay: Replay, group: I64, spared: F64) -> I64:
    """What the window loses without the spared share of all groups, and of each."""
    owner = gather(group, replay.owner)
    cut = np.rint(replay.lag_ns * gather(spared, owner, 0.0)).astype(np.int64)
    without = np.where(owner >= 0, replay.weight_ns - np.maximum(cut, 0), replay.weight_ns)
    everything = np.where(owner >= 0, np.int64(0), np.int64(-1))
    both = np.stack([everything, np.where(owner >= 0, owner + 1, -1)], axis=1)
    removal = Removal.of_edges(replay, both, np.stack([without, without], axis=1), len(spared) + 1)
    return removal.costs_ns(window)
