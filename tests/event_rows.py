"""Some events of a table, or all of them in another order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from htagraph.model.events import EVENT_DTYPES, EventTable


def taken(events: EventTable, rows: npt.NDArray[np.int64]) -> EventTable:
    """The events of these rows, in this order, with the columns that few events have."""
    place = np.full(len(events), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    columns = {}
    for name, column in events.columns.items():
        at = place[column.event]
        order = np.argsort(at)[np.count_nonzero(at < 0) :]
        columns[name] = replace(column, event=at[order], value=column.value[order])
    dense = {name: getattr(events, name)[rows] for name in EVENT_DTYPES}
    return replace(events, columns=columns, **dense)
