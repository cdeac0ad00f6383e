"""Nodes of an execution trace as columns: what each operator was, and its tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from htagraph.errors import TraceFormatError
from htagraph.model.arrays import I64, Bools
from htagraph.readers.byte_stream import content_of
from htagraph.readers.kineto.header import decoded

TEXTS = ("op_schema", "input_shapes", "input_types", "output_shapes", "output_types")
"""Texts of a node, as in the file."""

_MARKER = "[pytorch|profiler|execution_trace|"
_TENSOR_FIELDS = 6
"""Of a tensor: id, storage, offset, number of elements, bytes per element, device."""

_MOST = (1 << 63) - 1
"""Largest id, of 64 bits."""

_MUTATED = re.compile(r"\([a-z]+!")


@dataclass(frozen=True)
class ExecutionNodes:
    """The operators and ranges of an execution trace, in order of begin."""

    id: I64
    record_function: I64  # Id of the call, which the profiler may record too; 0 for none
    thread: I64  # Number of the thread within the execution trace
    # n_inputs, n_outputs: tensors among inputs and outputs, including those in lists
    n_inputs: I64
    n_outputs: I64
    name: list[str]
    texts: dict[str, list[str]]  # By name of `TEXTS`
    # access_node, access_storage, access_is_write: of each tensor that is read or written: row of
    # the node, number of the storage, and whether it is written
    access_node: I64
    access_storage: I64
    access_is_write: Bools
    n_unread: int  # Invalid nodes

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.name)


class _Node(NamedTuple):
    """One node, of any version of the format."""

    id: int
    record_function: int
    thread: int
    name: str
    texts: tuple[str, ...]
    reads: list[int]
    writes: list[int]
    n_outputs: int


def read_nodes(path: Path) -> ExecutionNodes:
    """The nodes of a file."""
    try:
        value = decoded(content_of(path))
    except ValueError as exc:
        raise TraceFormatError(
            f"this execution trace is not valid JSON ({exc})",
            path=path,
            hint="it is truncated if the observer was not stopped: call unregister_callback().",
        ) from exc
    listed = value.get("nodes") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise TraceFormatError(
            "this execution trace has no `nodes`",
            path=path,
            hint="is it one of torch.profiler.ExecutionTraceObserver?",
        )
    found = [_node(one) for one in listed]
    known = [one for one in found if one is not None and not one.name.startswith(_MARKER)]
    return _columns(sorted(known, key=lambda one: one.id), sum(one is None for one in found))


def _columns(nodes: list[_Node], n_unread: int) -> ExecutionNodes:
    def integers(values: Iterable[int]) -> I64:
        return np.fromiter(values, dtype=np.int64)

    touched = [
        (row, storage, is_write)
        for row, node in enumerate(nodes)
        for storages, is_write in ((node.reads, False), (node.writes, True))
        for storage in storages
    ]
    return ExecutionNodes(
        id=integers(node.id for node in nodes),
        record_function=integers(node.record_function for node in nodes),
        thread=integers(node.thread for node in nodes),
        n_inputs=integers(len(node.reads) for node in nodes),
        n_outputs=integers(node.n_outputs for node in nodes),
        name=[node.name for node in nodes],
        texts={name: [node.texts[k] for node in nodes] for k, name in enumerate(TEXTS)},
        access_node=integers(row for row, _, _ in touched),
        access_storage=integers(storage for _, storage, _ in touched),
        access_is_write=np.fromiter((is_write for _, _, is_write in touched), dtype=np.bool_),
        n_unread=n_unread,
    )


def _node(value: object) -> _Node | None:
    """A node of the file, None if invalid."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    number = _integer(value.get("id"))
    if number < 0:
        return None
    attributes = _attributes(value)
    (inputs, *of_inputs), (outputs, *of_outputs) = (
        _values(value, side) for side in ("inputs", "outputs")
    )
    reads = list(_storages(inputs))
    made, known = list(_storages(outputs)), set(reads)
    schema = attributes.get("op_schema")
    schema = schema.encode("utf-8", "replace").decode() if isinstance(schema, str) else ""
    mutated = _mutated(schema)
    changed = [one for k in mutated if k < len(inputs) for one in _storages([inputs[k]])]
    return _Node(
        number,
        max(_integer(attributes.get("rf_id")), 0),
        _integer(attributes.get("tid")),
        value["name"],
        (schema, *of_inputs, *of_outputs),
        reads,
        [*changed, *(storage for storage in made if storage not in known)],
        len(made),
    )


def _attributes(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Attributes of a node: in a list, in older versions its other keys."""
    listed = node.get("attrs")
    if not isinstance(listed, list):
        return node
    return {
        one["name"]: one.get("value")
        for one in listed
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }


def _values(node: Mapping[str, Any], side: str) -> tuple[list[Any], str, str]:
    """Values, shapes and types of inputs or outputs; older versions have a key for each."""
    given = node.get(side)
    if isinstance(given, dict):
        values, shapes, types = (given.get(key) for key in ("values", "shapes", "types"))
    else:
        one = side.removesuffix("s")
        values, shapes, types = given, node.get(f"{one}_shapes"), node.get(f"{one}_types")
    return values if isinstance(values, list) else [], _text(shapes), _text(types)


def _text(value: object) -> str:
    """A value as JSON, empty for None; escaped if it has half a surrogate pair."""
    if value is None:
        return ""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))


def _integer(value: object) -> int:
    """An id, -1 for anything else."""
    is_id = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
    return int(value) if is_id else -1  # type: ignore[call-overload]


def _storages(values: list[Any]) -> Iterator[int]:
    """Yield the storage of each tensor among some values, and in lists of them."""
    for value in values:
        if not isinstance(value, list):
            continue
        if len(value) == _TENSOR_FIELDS and isinstance(value[-1], str):
            storage = _integer(value[1])
            if storage > 0:
                yield storage
        elif value and isinstance(value[0], list):
            yield from _storages(value)


@lru_cache(maxsize=1 << 12)
def _mutated(schema: str) -> tuple[int, ...]:
    """Positions of the inputs that an operator mutates, by its schema."""
    _, _, rest = schema.partition("(")
    depth, current, arguments = 0, "", list[str]()
    for character in rest:
        if character == ")" and depth == 0:
            break
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            arguments.append(current)
            current = ""
        else:
            current += character
    arguments.append(current)
    inputs = [argument for argument in arguments if argument.strip() not in ("*", "")]
    return tuple(k for k, argument in enumerate(inputs) if _MUTATED.search(argument))
