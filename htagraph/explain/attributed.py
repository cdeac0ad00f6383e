"""Attributed time as codes, converted to text when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.explain.segments import Coded
from htagraph.model.frames import ATTRIBUTED_TIME
from htagraph.model.frozen import brief
from htagraph.model.kinds import Bound
from htagraph.model.schema import categorical

__all__ = ["Attributed"]

Text = npt.NDArray[np.object_]


@brief
@dataclass(frozen=True)
class Attributed:
    """Attributed time as codes.

    Parameters
    ----------
    columns : mapping of str to ndarray
        Columns of `frames.ATTRIBUTED_TIME`; text columns as codes.
    texts : mapping of str to ndarray
        The text of each code.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    texts: Mapping[str, Text]

    def frame(self) -> pd.DataFrame:
        """As text, schema `frames.ATTRIBUTED_TIME`."""
        words = {name: Coded(self.columns[name], texts).words for name, texts in self.texts.items()}
        return ATTRIBUTED_TIME.frame(self._ordered | words)

    def labels(self) -> pd.DataFrame:
        """With categories instead of text, which takes far less memory and time."""
        labels = {
            name: Coded(self.columns[name], texts).labels for name, texts in self.texts.items()
        }
        return pd.DataFrame(self._ordered | labels, copy=False)

    def causes(self) -> pd.DataFrame:
        """Segment, time and cause of each row."""
        cause = Coded(self.columns["cause"], self.texts["cause"]).labels
        return pd.DataFrame(
            {name: self.columns[name] for name in ("segment", "dur_ns")} | {"cause": cause},
            copy=False,
        )

    @property
    def _ordered(self) -> dict[str, Any]:
        """The columns in order."""
        bound = categorical(self.columns["bound"], Bound.labels())
        return {name: self.columns[name] for name in ATTRIBUTED_TIME.columns} | {"bound": bound}
