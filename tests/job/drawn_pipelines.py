"""Pipelines drawn from the durations of their actions, as an ideal machine runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from htagraph.arrays.pipelines import PHASES
from htagraph.job.pipeline import Pipeline
from htagraph.model.frames import PIPELINE_ACTIONS
from htagraph.model.schema import categorical

Order = Callable[[int, int, int], list[tuple[str, int]]]
"""Actions of a stage, in order: of the stage, the number of stages and of micro-batches."""


def gpipe(stage: int, n_stages: int, n_batches: int) -> list[tuple[str, int]]:
    """All forwards, then all backwards."""
    del stage, n_stages
    return [(phase, number) for phase in "FB" for number in range(n_batches)]


def one_forward_one_backward(stage: int, n_stages: int, n_batches: int) -> list[tuple[str, int]]:
    """As many forwards ahead as there are stages after it, then one of each."""
    ahead = min(n_stages - stage - 1, n_batches)
    order = [("F", number) for number in range(ahead)]
    for number in range(n_batches - ahead):
        order += [("F", number + ahead), ("B", number)]
    return order + [("B", number) for number in range(n_batches - ahead, n_batches)]


def drawn(
    n_stages: int,
    n_batches: int,
    dur_ms: Callable[[int, str, int], float],
    *,
    order: Order = one_forward_one_backward,
    n_replicas: int = 1,
    slow_rank: int = -1,
    transfer_ms: float = 0.0,
    n_steps: int = 2,
    python_share: float = 0.0,
) -> Pipeline:
    """A pipeline of one stage per rank; `dur_ms` is that of a stage, phase and micro-batch.

    Ranks are replica by replica. Each step lasts 1 ms before and 2 ms after the pipeline. The slow
    rank takes twice as long. In a share of each action, no operator runs.
    """
    rows: list[tuple[object, ...]] = []
    for step in range(n_steps):
        for replica in range(n_replicas):
            slow = slow_rank - replica * n_stages
            rows += _run(
                n_stages,
                [order(stage, n_stages, n_batches) for stage in range(n_stages)],
                lambda stage, phase, number, slow=slow: (
                    dur_ms(stage, phase, number) * (2 if stage == slow else 1)
                ),
                transfer_ms,
                (replica, step),
            )
    table = pd.DataFrame(
        rows, columns=["replica", "step", "stage", "phase", "micro_batch", "a", "z", "w"]
    )
    length = table["z"].max() + 3
    first = table["step"] * length + 1
    table = table.assign(rank=table["replica"] * n_stages + table["stage"])
    ns = {
        name: np.round((table[column] + (0 if column == "w" else first)) * 1e6).astype(np.int64)
        for name, column in (("begin_ns", "a"), ("end_ns", "z"), ("waited_ns", "w"))
    }
    columns = {n: table[n].to_numpy() for n in ("rank", "replica", "stage", "micro_batch", "step")}
    columns["python_ns"] = ((ns["end_ns"] - ns["begin_ns"]) * python_share).astype(np.int64)
    phase = categorical(table["phase"].map(PHASES.index), PHASES)
    actions = PIPELINE_ACTIONS.frame({**columns, **ns, "phase": phase})
    last = actions.groupby("step")["end_ns"].transform("max") + 2_000_000
    steps = actions[["rank", "step"]].assign(start_ns=0, end_ns=last).drop_duplicates()
    steps["start_ns"] = np.round(steps["step"] * length * 1e6).astype(np.int64)
    waits = pd.DataFrame(
        {
            "rank": actions["rank"],
            "start_ns": actions["begin_ns"] - actions["waited_ns"],
            "end_ns": actions["begin_ns"],
        }
    )
    return Pipeline(actions, steps, waits)


def _run(
    n_stages: int,
    orders: Sequence[list[tuple[str, int]]],
    dur_ms: Callable[[int, str, int], float],
    transfer_ms: float,
    run: tuple[int, int],
) -> list[tuple[object, ...]]:
    """The actions of one step: each begins when its stage is free and its input is there."""
    ended: dict[tuple[int, str, int], float] = {}
    free, place = [0.0] * n_stages, [0] * n_stages
    rows: list[tuple[object, ...]] = []
    while any(at < len(order) for at, order in zip(place, orders, strict=True)):
        for stage in range(n_stages):
            if place[stage] == len(orders[stage]):
                continue
            phase, number = orders[stage][place[stage]]
            source = (stage - 1 if phase == "F" else stage + 1, phase, number)
            is_fed = 0 <= source[0] < n_stages
            if is_fed and source not in ended:
                continue
            begin = max(free[stage], ended[source] + transfer_ms if is_fed else 0.0)
            end = begin + dur_ms(stage, phase, number)
            rows.append((*run, stage, phase, number, begin, end, begin - free[stage]))
            free[stage], ended[stage, phase, number] = end, end
            place[stage] += 1
    return rows
