"""Attributed time as codes, converted to text when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import pandas as pd

from htagraph.explain.segments import Coded
from htagraph.model.frames import ATTRIBUTED_TIME
from htagraph.model.frozen import brief
from htagraph.model.kinds import Bound
from htagraph.model.schema import categorical


@brief
@dataclass(frozen=True)
class Attributed:
    """Attributed time as codes.

    Parameters
    ----------
    columns : mapping of str to ndarray
        Columns of `frames.ATTRIBUTED_TIME` that are no text; bounds as codes.
    codes : mapping of str to Coded
        Columns of texts, each of which is distinct.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    codes: Mapping[str, Coded]

    def frame(self) -> pd.DataFrame:
        """As text, schema `frames.ATTRIBUTED_TIME`."""
        words = {name: coded.words for name, coded in self.codes.items()}
        return ATTRIBUTED_TIME.frame(self._columns | words)

    def labels(self) -> pd.DataFrame:
        """With categories instead of text, which takes far less memory and time."""
        labels = {name: coded.labels for name, coded in self.codes.items()}
        both = self._columns | labels
        return pd.DataFrame({name: both[name] for name in ATTRIBUTED_TIME.columns}, copy=False)

    def causes(self) -> pd.DataFrame:
        """Segment, time and cause of each row."""
        columns = {name: self.columns[name] for name in ("segment", "dur_ns")}
        return pd.DataFrame(columns | {"cause": self.codes["cause"].labels}, copy=False)

    @property
    def _columns(self) -> dict[str, Any]:
        """The columns that are no text, bounds as categories."""
        return {**self.columns, "bound": categorical(self.columns["bound"], Bound.labels())}
