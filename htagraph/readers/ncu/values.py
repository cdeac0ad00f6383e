"""Numbers and units of Nsight Compute: thousands with separators, Kbyte, usecond, Ghz."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["numbers", "scale"]

_POWER = {"": 0, "n": -9, "u": -6, "m": -3, "K": 3, "M": 6, "G": 9, "T": 12}
_SECOND = re.compile(r"^(?P<prefix>[num]?)(second|s|sec)$")
_SCALED = re.compile(r"^(?P<prefix>[KMGT])(?:i?bytes?|B|hz|Hz|cycles?|insts?|sectors?|requests?)?$")
_NS = 9


def scale(unit: str) -> float:
    """What a value in a unit is multiplied with: to bytes, to nanoseconds, to "per second".

    Examples
    --------
    >>> scale("Kbyte"), scale("usecond"), scale("Gbyte/second"), scale("cycle/nsecond"), scale("%")
    (1000.0, 1000.0, 1000000000.0, 1000000000.0, 1.0)
    """
    above, _, below = unit.strip().partition("/")
    time = _SECOND.match(above)
    many = _SCALED.match(above)
    power = _POWER[time["prefix"]] + _NS if time else _POWER[many["prefix"]] if many else 0
    per = _SECOND.match(below)
    return 10.0 ** (power - _POWER[per["prefix"]] if per else power)


def numbers(texts: pd.Series[str], *, decimal_comma: bool = False) -> npt.NDArray[np.float64]:
    """Numbers from their texts; NaN for what is none.

    Examples
    --------
    >>> numbers(pd.Series(["1,234.5", "n/a", "7"])).tolist()
    [1234.5, nan, 7.0]
    >>> numbers(pd.Series(["1.234,5"]), decimal_comma=True).tolist()
    [1234.5]
    """
    thousands, point = (".", ",") if decimal_comma else (",", ".")
    plain = texts.str.replace(thousands, "", regex=False).str.replace(point, ".", regex=False)
    value = pd.to_numeric(plain, errors="coerce").to_numpy(np.float64)
    return np.where(np.isfinite(value), value, np.nan)
