"""How likely it is that so many of so many match by chance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import F64


def log_chance(n_matched: npt.ArrayLike, n_all: npt.ArrayLike, share: npt.ArrayLike) -> F64:
    """Upper bound of the log of the chance that at least `n_matched` of `n_all` match.

    Chernoff's bound, ``-n * KL(n_matched / n || share)`` (Hoeffding 1963, theorem 1); 0 where no
    more match than expected. `share` is the chance of a single match.

    Examples
    --------
    >>> log_chance([3, 1], [3, 10], [0.1, 0.1]).round(2).tolist()
    [-6.91, 0.0]
    """
    matched, count = np.asarray(n_matched, dtype=float), np.asarray(n_all, dtype=float)
    chance = np.clip(np.asarray(share, dtype=float), 1e-12, 1.0)
    found = matched / np.maximum(count, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(found > 0, found * np.log(found / chance), 0.0)
        misses = np.where(found < 1, (1 - found) * np.log((1 - found) / (1 - chance)), 0.0)
    out: F64 = np.where(found > chance, -count * (hits + misses), 0.0)
    return out
