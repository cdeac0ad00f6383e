"""Execution nodes: what an execution trace says of operators, where one was added."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.model.answers import EXECUTION_NODES
from htagraph.model.events import EventTable, SparseColumn
from htagraph.model.symbols import SymbolTable
from htagraph.model.window import Window
from htagraph.queries.operators import execution_nodes
from htagraph.synth import timeline


def _correlated() -> EventTable:
    """Two operators, of which the execution trace knows the second."""
    events = timeline("cpu 1 |[aten::mm ][aten::t ]")
    texts = tuple(events.symbols.texts)
    second = np.array([1])
    numbers = {
        "execution_node": 7,
        "record_function": 3,
        "tensor_inputs": 1,
        "tensor_outputs": 2,
    }
    words = ("op_schema", "input_shapes", "input_types", "output_shapes", "output_types")
    columns = {name: SparseColumn(second, np.array([n])) for name, n in numbers.items()}
    columns |= {
        name: SparseColumn(second, np.array([len(texts) + k], dtype=np.int32))
        for k, name in enumerate(words)
    }
    return replace(events, columns=columns, symbols=SymbolTable((*texts, *words)))


def test_an_operator_has_its_node_and_what_it_took():
    frame = execution_nodes(compile_events(_correlated()), Window(0, 50_000, "all"))

    assert frame.to_numpy().tolist() == [
        [1, "aten::t", 7, 3, 1, 2,
         "op_schema", "input_shapes", "input_types", "output_shapes", "output_types"],
    ]  # fmt: skip


def test_only_operators_of_the_window_are_told():
    assert len(execution_nodes(compile_events(_correlated()), Window(0, 5_000, "first"))) == 0


def test_without_an_execution_trace_there_is_nothing():
    dag = compile_events(timeline("cpu 1 |[aten::mm ]"))

    assert execution_nodes(dag, Window(0, 50_000, "all")).equals(EXECUTION_NODES.empty())
