"""A graph as named arrays and back: the content of a saved graph, without code or pickles.

The recording behind a graph has the same events, except that times may be moved to the host clock.
Strings are one block of UTF-8 with offsets; small facts are one JSON text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from htagraph.model.dag import Calibration, Classification, Dag, RejectedEdges
from htagraph.model.devices import DeviceProperties
from htagraph.model.edges import EdgeTable, Support
from htagraph.model.events import (
    EVENT_DTYPES,
    CapturedCalls,
    EventTable,
    FlowTable,
    LaneTable,
    SparseColumn,
)
from htagraph.model.recording import Attachment, Origin, Recording, Repair
from htagraph.model.rules import Rule
from htagraph.model.samples import SampleTable, Series
from htagraph.model.symbols import SymbolTable
from htagraph.model.window import Window

VERSION = 11
"""Changes whenever an array changes its meaning."""

Arrays = dict[str, npt.NDArray[Any]]
_T = TypeVar("_T")

_SAMPLE_COLUMNS = ("ts_ns", "value", "series")
_DAG_COLUMNS = ("parent", "launch", "order", "binding", "is_work")


def _text_arrays(prefix: str, texts: Any) -> Arrays:  # noqa: ANN401  any sequence of str
    """Strings as one block and its offsets; lone surrogates survive."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.fromiter((len(text) for text in encoded), dtype=np.int64, count=len(encoded))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return {
        f"{prefix}.bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        f"{prefix}.offsets": offsets,
    }


def _texts(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[str, ...]:
    """The strings of a block."""
    block = arrays[f"{prefix}.bytes"].tobytes()
    offsets = arrays[f"{prefix}.offsets"].tolist()
    return tuple(
        block[start:end].decode("utf-8", "surrogatepass")
        for start, end in itertools.pairwise(offsets)
    )


def _fields_of(prefix: str, table: object) -> Arrays:
    """The arrays of a dataclass."""
    names = [item.name for item in fields(table)]  # type: ignore[arg-type]
    return {f"{prefix}.{name}": getattr(table, name) for name in names}


def _table(kind: type[_T], prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> _T:
    """The dataclass whose arrays `_fields_of` gave."""
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: arrays[f"{prefix}.{name}"] for name in names})


def pack(dag: Dag, *, rank: int, origin: Origin | None) -> Arrays:
    """Everything of a graph as arrays.

    `origin`: only a path is kept, not the content.
    """
    events = dag.events
    path = origin.path if origin is not None else None
    facts = {
        "version": VERSION,
        "rules": Rule.labels(),
        "rank": rank,
        "path": None if path is None else str(path.resolve()),
        "base_time_ns": origin.base_time_ns if origin is not None else 0,
        "metadata": _short(origin.metadata) if origin is not None else {},
        "calibration": asdict(dag.calibration),
        "class_rules": dag.classification.rules,
        "span": asdict(dag.span),
        "notes": dict(dag.notes),
        "support": [asdict(one) for one in dag.support],
        "repairs": [asdict(repair) for repair in dag.repairs],
        "data_loading": dag.data_loading,
        "columns": list(events.columns),
        "devices": [asdict(device) for device in events.devices],
        "series": [asdict(series) for series in events.samples.all_series],
        "lanes": {item.name: getattr(events.lanes, item.name) for item in fields(LaneTable)},
    }
    arrays: Arrays = {f"events.{name}": getattr(events, name) for name in EVENT_DTYPES}
    arrays |= {f"dag.{name}": getattr(dag, name) for name in _DAG_COLUMNS}
    arrays |= {f"samples.{name}": getattr(events.samples, name) for name in _SAMPLE_COLUMNS}
    arrays |= _fields_of("captured", events.captured)
    arrays |= _fields_of("flows", events.flows) | _fields_of("edges", dag.edges)
    arrays |= _fields_of("rejected", dag.rejected.edges)
    arrays |= {
        "rejected_skew_ns": dag.rejected.skew_ns,
        "class.kernel_class": dag.classification.kernel_class,
        "class.rule": dag.classification.rule,
    }
    for name, column in events.columns.items():
        arrays |= {f"column.{name}.event": column.event, f"column.{name}.value": column.value}
    arrays |= _text_arrays("symbols", events.symbols.texts)
    arrays |= _text_arrays("lists", events.lists.texts)
    return arrays | _text_arrays("facts", [json.dumps(facts)])


def unpack(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[Dag, int, Origin | None]:
    """A graph, its rank and its origin from what `pack` returned."""
    facts = json.loads(_texts("facts", arrays)[0])
    if facts["version"] != VERSION or tuple(facts["rules"]) != Rule.labels():
        raise ValueError(
            f"saved by another version of htagraph (format {facts['version']}, this is {VERSION})."
        )
    lanes = LaneTable(**{name: tuple(values) for name, values in facts["lanes"].items()})
    columns = {
        name: SparseColumn(arrays[f"column.{name}.event"], arrays[f"column.{name}.value"])
        for name in facts["columns"]
    }
    events = EventTable(
        **{name: arrays[f"events.{name}"] for name in EVENT_DTYPES},
        symbols=SymbolTable(_texts("symbols", arrays)),
        lists=SymbolTable(_texts("lists", arrays)),
        lanes=lanes,
        flows=_table(FlowTable, "flows", arrays),
        captured=_table(CapturedCalls, "captured", arrays),
        columns=columns,
        devices=tuple(DeviceProperties(**device) for device in facts["devices"]),
        samples=SampleTable(
            **{name: arrays[f"samples.{name}"] for name in _SAMPLE_COLUMNS},
            all_series=tuple(Series(**series) for series in facts["series"]),
        ),
    )
    dag = Dag(
        events=events,
        edges=_table(EdgeTable, "edges", arrays),
        **{name: arrays[f"dag.{name}"] for name in _DAG_COLUMNS},
        classification=Classification(
            arrays["class.kernel_class"], arrays["class.rule"], tuple(facts["class_rules"])
        ),
        calibration=Calibration(**facts["calibration"]),
        rejected=RejectedEdges(_table(EdgeTable, "rejected", arrays), arrays["rejected_skew_ns"]),
        span=Window(**facts["span"]),
        notes=facts["notes"],
        support=tuple(
            Support(**{**one, "rule": list(Rule)[one["rule"]]}) for one in facts["support"]
        ),
        repairs=tuple(Repair(**repair) for repair in facts["repairs"]),
        data_loading=tuple(map(str, facts["data_loading"])),
    )
    known = {"base_time_ns": facts["base_time_ns"], "metadata": facts["metadata"]}
    origin = Origin(Path(facts["path"]), **known) if facts["path"] else None
    return dag, facts["rank"], origin


def _short(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of its recording, without lists, and of tables only their plain values."""
    plain = str | float | int
    found = {
        name: {key: one for key, one in value.items() if isinstance(one, plain)}
        if isinstance(value, dict)
        else value
        for name, value in metadata.items()
    }
    return {name: value for name, value in found.items() if value and not isinstance(value, list)}


def pack_recording(recording: Recording, dag: Dag) -> Arrays:
    """What a recording has beyond its graph, as arrays to be stored with those of `pack`.

    `dag`: the graph of its events.
    """
    origin = recording.origin
    facts = {
        "rank_source": recording.rank_source,
        "world_size": recording.world_size,
        "skipped": dict(recording.skipped),
        "n_bytes": dict(recording.n_bytes),
        "attached": [{**asdict(one), "path": str(one.path)} for one in recording.attached],
        "base_time_ns": origin.base_time_ns if origin is not None else 0,
        "metadata": dict(origin.metadata) if origin is not None else {},
    }
    moved_ns = recording.events.ts_ns - dag.events.ts_ns
    moved = np.flatnonzero(moved_ns)
    return {
        "recording.moved": moved,
        "recording.moved_ns": moved_ns[moved],
        **_text_arrays("recording", [json.dumps(facts)]),
    }


def unpack_recording(arrays: Mapping[str, npt.NDArray[Any]], dag: Dag, rank: int) -> Recording:
    """The recording behind a graph, from what `pack_recording` returned; without a source."""
    facts = json.loads(_texts("recording", arrays)[0])
    ts_ns = dag.events.ts_ns.copy()
    ts_ns[arrays["recording.moved"]] += arrays["recording.moved_ns"]
    return Recording(
        events=replace(dag.events, ts_ns=ts_ns),
        rank=rank,
        rank_source=facts["rank_source"],
        world_size=facts["world_size"],
        repairs=dag.repairs,
        skipped=facts["skipped"],
        n_bytes=facts["n_bytes"],
        attached=tuple(
            Attachment(**{**one, "path": Path(one["path"])}) for one in facts["attached"]
        ),
        origin=Origin(b"", facts["base_time_ns"], metadata=facts["metadata"]),
    )
