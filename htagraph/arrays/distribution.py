"""Statistics of values by group: count, sum, mean, deviation, extremes, quantiles; by one sort."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import F64, I64


class Distribution(NamedTuple):
    """Statistics of the values of each group, groups ascending."""

    # group, n, total, smallest, largest: of shape (k,)
    group: I64
    n: I64
    total: I64
    # mean, deviation: of shape (k,). `deviation` is that of a sample, 0 of one value.
    mean: F64
    deviation: F64
    smallest: I64
    largest: I64
    first: I64  # Of shape (k,). Position of a smallest value of each group.
    quantiles: I64  # Of shape (n_quantiles, k)


def distribution(group: I64, value: I64, quantiles: tuple[float, ...] = ()) -> Distribution:
    """Statistics of the values of each group.

    A quantile is one of the values, the largest at or below its rank: integers stay integers.
    """
    order = np.lexsort((value, group))
    groups, values = group[order], value[order]
    begins = (
        np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
        if len(groups)
        else order
    )
    n = np.diff(np.append(begins, len(groups)))
    total = np.add.reduceat(values, begins) if len(groups) else values
    mean = total / np.maximum(n, 1)
    square = (values - np.repeat(mean, n)) ** 2
    variance = np.add.reduceat(square, begins) / np.maximum(n - 1, 1) if len(groups) else mean
    ranks = [begins + ((n - 1) * q).astype(np.int64) for q in quantiles]
    return Distribution(
        group=groups[begins],
        n=n,
        total=total,
        mean=mean,
        deviation=np.sqrt(variance),
        smallest=values[begins],
        largest=values[begins + n - 1],
        first=order[begins],
        quantiles=np.array([values[rank] for rank in ranks], dtype=np.int64).reshape(
            len(ranks), len(n)
        ),
    )
