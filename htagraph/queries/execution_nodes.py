"""Execution nodes: what an execution trace records of operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.lookup.clipping import clipped
from htagraph.model.answers import EXECUTION_NODES
from htagraph.model.dag import Dag
from htagraph.model.window import Window


def execution_nodes(dag: Dag, window: Window) -> pd.DataFrame:
    """Operators and annotations in the window, each with its node of the execution trace.

    Returns
    -------
    DataFrame, schema `answers.EXECUTION_NODES`
        By start, then by node. Empty if no execution trace was added.
    """
    events = dag.events
    known = events.columns.get("execution_node")
    rows = clipped(dag, np.empty(0, np.int64) if known is None else known.event, window).event
    node = events.column("execution_node")[rows]
    order = np.lexsort((node, events.ts_ns[rows]))
    rows = rows[order]

    def text(column: str) -> npt.NDArray[Any]:
        codes = events.column(column)[rows]
        return np.array([events.symbols.texts[code] for code in codes.tolist()], dtype=object)

    return EXECUTION_NODES.frame(
        {
            "event": rows,
            "name": events.names(rows),
            "node": node[order],
            "record_function": np.maximum(events.column("record_function")[rows], -1),
            "n_inputs": events.column("tensor_inputs")[rows],
            "n_outputs": events.column("tensor_outputs")[rows],
            "op_schema": text("op_schema"),
            "input_shapes": text("input_shapes"),
            "input_types": text("input_types"),
            "output_shapes": text("output_shapes"),
            "output_types": text("output_types"),
        }
    )
