"""The event table: one row per event, a struct of read-only numpy columns.

Event ``e`` has node ``2e`` (its start) and node ``2e + 1`` (its end); there is no node table. Rows
are in file order, so that a row can be traced back to the bytes it came from. A reader makes a
table with `EventTable.of`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import QueryError
from htagraph.model.arrays import I8, I32, I64, Bools, Frozen, Texts, brief, empty
from htagraph.model.devices import DeviceProperties
from htagraph.model.kinds import DEVICE_KINDS, HOST_KINDS, EventKind, among
from htagraph.model.samples import SampleTable
from htagraph.model.schema import categorical
from htagraph.model.symbols import SymbolTable

Lane = tuple[int | str, int | str]
"""Process id and thread id, as a file names them; of device work, device and stream."""

CAPTURED_LAUNCH = "captured_launch"
"""Sparse column of replayed device work: the row of `CapturedCalls` that launched it."""


@brief
@dataclass(frozen=True)
class CapturedCalls(Frozen):
    """Launches that were captured, the operators around them, and the frames of modules.

    Rows follow those of the `EventTable` that holds them: call ``i`` is event ``n_events + i`` of
    `Dag.unrolled`.
    """

    # ts_ns, dur_ns: on the clock of the capture, which may be another run
    ts_ns: I64 = field(default_factory=empty(np.int64))
    dur_ns: I64 = field(default_factory=empty(np.int64))
    # Codes of `EventKind`: operators, API calls and Python frames
    kind: I8 = field(default_factory=empty(np.int8))
    name: I32 = field(default_factory=empty(np.int32))  # Codes of the events' symbols
    # Number of the thread among those of the captures
    lane: I32 = field(default_factory=empty(np.int32))
    # Row of the innermost operator around each operator and launch, -1 for none
    parent: I32 = field(default_factory=empty(np.int32))
    # arg_dims, arg_types, arg_strides, arg_values: codes of the events' lists, -1 for none
    arg_dims: I32 = field(default_factory=empty(np.int32))
    arg_types: I32 = field(default_factory=empty(np.int32))
    arg_strides: I32 = field(default_factory=empty(np.int32))
    arg_values: I32 = field(default_factory=empty(np.int32))
    # sequence, fwd_thread: as the columns of events, -1 for none
    sequence: I64 = field(default_factory=empty(np.int64))
    fwd_thread: I64 = field(default_factory=empty(np.int64))

    def __len__(self) -> int:
        """Number of calls."""
        return len(self.ts_ns)


CAPTURED_DTYPES = {name: column.dtype for name, column in vars(CapturedCalls()).items()}
"""Columns of captured calls."""

EVENT_DTYPES: dict[str, type[np.generic]] = {
    "ts_ns": np.int64,
    "dur_ns": np.int64,
    "kind": np.int8,
    "name": np.int32,
    "category": np.int32,
    "lane": np.int32,
    "device": np.int32,
    "stream": np.int64,
    "correlation": np.int64,
    "external_id": np.int64,
}
"""Columns with a value for every event."""

LIST_COLUMNS = ("arg_dims", "arg_types", "arg_strides", "arg_values")
"""Sparse columns of an operator's inputs, whose values are codes of `EventTable.lists`."""


@brief
@dataclass(frozen=True)
class LaneTable:
    """The (pid, tid) pairs of a trace: host threads and device streams as the file names them."""

    # pid, tid: as in the file; numeric text is an int
    pid: tuple[int | str, ...] = ()
    tid: tuple[int | str, ...] = ()
    # process, thread: names from the file's metadata events, ``""`` for none
    process: tuple[str, ...] = ()
    thread: tuple[str, ...] = ()
    # process_sort, thread_sort: sort indices from the metadata events, 0 for none
    process_sort: tuple[int, ...] = ()
    thread_sort: tuple[int, ...] = ()
    # Labels from the metadata events (``CPU``, ``GPU 0``), ``""`` for none
    process_labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of lanes."""
        return len(self.pid)

    def label(self, lane: int) -> str:
        """Label of a lane: ``thread 1234 (python)``, ``stream 7``."""
        name, tid = self.thread[lane], self.tid[lane]
        return name if name and str(tid) in name else f"{tid} ({name})" if name else str(tid)


_LANE_FIELDS: Mapping[str, str | int] = {
    "process": "",
    "thread": "",
    "process_sort": 0,
    "thread_sort": 0,
    "process_labels": "",
}
"""Columns of `LaneTable`, and what they hold for a lane without a name."""


@brief
@dataclass(frozen=True)
class SparseColumn(Frozen):
    """A column that few events have."""

    event: I64  # Rows with a value, ascending, each once
    value: npt.NDArray[Any]  # int64, float64, or int32 codes of the event table's symbols or lists

    def dense(self, n_events: int, default: float) -> npt.NDArray[Any]:
        """One value per event, else `default`."""
        out = np.full(n_events, default, dtype=self.value.dtype)
        out[self.event] = self.value
        return out


@brief
@dataclass(frozen=True)
class FlowTable(Frozen):
    """Flow points (``ph`` s, t, f), except those that only repeat a correlation id."""

    ts_ns: I64 = field(default_factory=empty(np.int64))
    id: I64 = field(default_factory=empty(np.int64))
    lane: I32 = field(default_factory=empty(np.int32))
    # 0 start (``s``), 1 step (``t``), 2 finish (``f``), 3 finish on the next slice of its lane
    phase: I8 = field(default_factory=empty(np.int8))
    category: I32 = field(default_factory=empty(np.int32))  # Symbol of ``cat`` (``fwdbwd``)
    # Event of the point if the file names it; -1 if its lane and time do
    event: I64 = field(default_factory=empty(np.int64))

    def __len__(self) -> int:
        """Number of flow points."""
        return len(self.ts_ns)


@brief
@dataclass(frozen=True)
class EventTable(Frozen):
    """Events of one rank, in file order."""

    # ts_ns, dur_ns: of shape (n_events,). Start (absolute if the file has an absolute base) and
    # duration.
    ts_ns: I64
    dur_ns: I64
    kind: I8  # Of shape (n_events,). Codes of `EventKind`.
    # name, category: of shape (n_events,). Codes of `symbols`.
    name: I32
    category: I32
    lane: I32  # Of shape (n_events,). Row of `lanes`.
    device: I32  # Of shape (n_events,). Device of device work, else -1.
    stream: I64  # Of shape (n_events,). Stream of device work, else -1.
    # correlation, external_id: of shape (n_events,). Ids that link events, of different id spaces:
    # never compared. -1 for none.
    correlation: I64
    external_id: I64
    symbols: SymbolTable
    lanes: LaneTable
    flows: FlowTable = field(default_factory=FlowTable)
    # ``bytes``, ``memory_bandwidth``, ``wait_on_stream``, ``fwd_thread``, ``sequence`` …
    columns: Mapping[str, SparseColumn] = field(default_factory=dict)
    devices: tuple[DeviceProperties, ...] = ()  # Devices described in the file, each once
    samples: SampleTable = field(default_factory=SampleTable)  # Counters sampled meanwhile
    # JSON lists as written: shapes, types, strides and values of operators' inputs
    lists: SymbolTable = field(default_factory=lambda: SymbolTable(()))
    # Calls of the capture of graphs, if its trace was added; no events of this recording
    captured: CapturedCalls = field(default_factory=CapturedCalls)

    @classmethod
    def of(
        cls,
        *,
        ts_ns: npt.ArrayLike,
        dur_ns: npt.ArrayLike,
        kind: npt.ArrayLike,
        name: Sequence[str],
        lane: Sequence[Lane],
        category: Sequence[str] | None = None,
        device: npt.ArrayLike = -1,
        stream: npt.ArrayLike = -1,
        correlation: npt.ArrayLike = -1,
        external_id: npt.ArrayLike = -1,
        columns: Mapping[str, Sequence[Any]] | None = None,
        flows: Iterable[tuple[str, int, int, Lane, int]] = (),
        lanes: Mapping[Lane, Mapping[str, str | int]] | None = None,
    ) -> EventTable:
        """The table of some columns, with a value for each event, in the order of the file.

        Parameters
        ----------
        ts_ns, dur_ns : array_like of int, unit=ns
            Start and duration. Starts count from any time that all events share.
        kind : array_like of EventKind
            ``OP``, ``RUNTIME`` and ``ANNOTATION`` are of a host thread; ``KERNEL``, ``MEMCPY`` and
            ``MEMSET`` are device work, and need a device and a stream.
        name : sequence of str
            As a person reads them; equal names are kept once.
        lane : sequence of (int or str, int or str)
            Process and thread; of device work, device and stream.
        category : sequence of str, optional
            As the file has it; by default the label of the kind.
        device, stream : array_like of int, default=-1
            Where device work ran; -1 for host events.
        correlation : array_like of int, default=-1
            Number that a call shares with the device work that it launched; -1 for none.
        external_id : array_like of int, default=-1
            Number that an operator shares with what it ran; -1 for none.
        columns : mapping of str to sequence, optional
            Further columns, such as ``bytes``, ``wait_on_stream``, ``sequence``: a number or text
            for each event, None for none.
        flows : iterable of (str, int, int, (int or str, int or str), int)
            Ends of arrows between events: category (``fwdbwd``), phase (0 start, 2 finish), number
            of the arrow, and lane and time of the event.
        lanes : mapping, optional
            Fields of `LaneTable` (``process``, ``thread`` …) by lane, for those that have names.

        Returns
        -------
        EventTable

        Raises
        ------
        QueryError
            If a column has another length than the names, or an unknown kind; or an arrow ends on
            a lane without events.

        Examples
        --------
        A call that launches a kernel:

        >>> events = EventTable.of(
        ...     ts_ns=[0, 4_000],
        ...     dur_ns=[3_000, 20_000],
        ...     kind=[EventKind.RUNTIME, EventKind.KERNEL],
        ...     name=["cudaLaunchKernel", "gemm"],
        ...     lane=[(100, 1), (0, 7)],
        ...     device=[-1, 0],
        ...     stream=[-1, 7],
        ...     correlation=[5, 5],
        ...     columns={"registers": [None, 64]},
        ... )
        >>> events.frame()[["name", "kind", "ts_ns", "dur_ns", "stream"]]
                       name     kind  ts_ns  dur_ns  stream
        0  cudaLaunchKernel  runtime      0    3000      -1
        1              gemm   kernel   4000   20000       7
        >>> events.column("registers").tolist()
        [-1, 64]
        """
        given: dict[str, Any] = {"ts_ns": ts_ns, "dur_ns": dur_ns, "kind": kind, "lane": lane}
        given |= {"device": device, "stream": stream, "correlation": correlation}
        given |= {"external_id": external_id, **(columns or {}), "category": category or name}
        for column, values in given.items():
            if np.ndim(values) and len(values) != len(name):
                raise QueryError(
                    f"column {column!r} has {len(values):,} values, and there are {len(name):,} "
                    "names.",
                    hint="give a value for each event; in further columns, None for none.",
                )
        codes: dict[str, int] = {}

        def coded(texts: Iterable[str]) -> I32:
            return np.array([codes.setdefault(one, len(codes)) for one in texts], dtype=np.int32)

        def ints(values: npt.ArrayLike, dtype: type[np.generic]) -> npt.NDArray[Any]:
            return np.broadcast_to(np.asarray(values, dtype=dtype), len(name)).copy()

        def sparse(values: Sequence[Any]) -> SparseColumn:
            rows = np.array([row for row, one in enumerate(values) if one is not None], np.int64)
            found = [values[row] for row in rows.tolist()]
            if found and isinstance(found[0], str):
                return SparseColumn(rows, coded(found))
            is_whole = not any(isinstance(one, float) for one in found)
            return SparseColumn(rows, np.array(found, dtype=np.int64 if is_whole else np.float64))

        kinds = ints(kind, np.int64)
        if unknown := set(kinds.tolist()) - set(EventKind):
            raise QueryError(f"no kind {min(unknown)}.", hint="kinds are members of `EventKind`.")
        named = dict(lanes or {})
        number = {one: row for row, one in enumerate(dict.fromkeys([*named, *lane]))}
        points = list(flows)
        if astray := [point for point in points if point[3] not in number]:
            raise QueryError(
                f"an arrow ends on lane {astray[0][3]}, which has no events.",
                hint="name the lane of an event as the event does.",
            )
        return cls(
            ts_ns=ints(ts_ns, np.int64),
            dur_ns=ints(dur_ns, np.int64),
            kind=kinds.astype(np.int8),
            name=coded(name),
            category=coded(category or [EventKind(one).label for one in kinds.tolist()]),
            lane=np.array([number[one] for one in lane], dtype=np.int32),
            device=ints(device, np.int32),
            stream=ints(stream, np.int64),
            correlation=ints(correlation, np.int64),
            external_id=ints(external_id, np.int64),
            columns={column: sparse(values) for column, values in (columns or {}).items()},
            flows=FlowTable(
                category=coded(point[0] for point in points),
                phase=np.array([point[1] for point in points], dtype=np.int8),
                id=np.array([point[2] for point in points], dtype=np.int64),
                lane=np.array([number[point[3]] for point in points], dtype=np.int32),
                ts_ns=np.array([point[4] for point in points], dtype=np.int64),
                event=np.full(len(points), -1, dtype=np.int64),
            ),
            lanes=LaneTable(
                pid=tuple(one[0] for one in number),
                tid=tuple(one[1] for one in number),
                **{
                    key: tuple(named.get(one, {}).get(key, none) for one in number)
                    for key, none in _LANE_FIELDS.items()
                },  # type: ignore[arg-type]
            ),
            symbols=SymbolTable(tuple(codes)),
        )

    def __len__(self) -> int:
        """Number of events."""
        return len(self.ts_ns)

    @property
    def end_ns(self) -> I64:
        """End of each event: ``ts_ns + dur_ns``; a view of `node_ts_ns`."""
        return self.node_ts_ns[1::2]

    @cached_property
    def node_ts_ns(self) -> I64:
        """Time of each node, shape (2 * n_events,): starts at even, ends at odd positions."""
        out = np.empty(2 * len(self), dtype=np.int64)
        out[0::2] = self.ts_ns
        np.add(self.ts_ns, self.dur_ns, out=out[1::2])
        out.setflags(write=False)
        return out

    @cached_property
    def is_device(self) -> Bools:
        """Whether an event is device work (kernel, memcpy, memset)."""
        return among(self.kind, DEVICE_KINDS)

    @cached_property
    def is_host(self) -> Bools:
        """Whether an event is a graph node on a host thread (op, runtime call, annotation)."""
        return among(self.kind, HOST_KINDS)

    @property
    def device_names(self) -> tuple[str, ...]:
        """Names of the devices described in the file, each once."""
        return tuple(dict.fromkeys(device.name for device in self.devices if device.name))

    @property
    def tiebreak(self) -> I64:
        """Number of each event by its duration and name, regardless of its place in the file."""
        n_names = len(self.symbols)
        rank = np.empty(n_names, dtype=np.int64)
        rank[np.argsort(self.symbols.array, kind="stable")] = np.arange(n_names)
        number = self.dur_ns * max(n_names, 1)
        if n_names:
            number += rank[self.name]
        return number

    def searched(self, regex: str | re.Pattern[str]) -> Bools:
        """Whether a regular expression is found in the name of each event."""
        return self.named(self.symbols.searched(regex))

    def names(self, events: npt.ArrayLike | None = None) -> Texts:
        """Names of all events, or of some."""
        picked = self.name if events is None else self.name[np.asarray(events, dtype=np.int64)]
        return self.symbols.array[picked]

    def named(self, symbol_mask: Bools) -> Bools:
        """Whether the name of each event is in a mask over symbols (`SymbolTable.mask`)."""
        return symbol_mask[self.name] if symbol_mask.any() else np.zeros(len(self), dtype=bool)

    def column(self, name: str, default: float = -1) -> npt.NDArray[Any]:
        """Sparse column as one value per event; all `default` if the trace has none."""
        sparse = self.columns.get(name)
        if sparse is None:
            return np.full(len(self), default, dtype=np.int64)
        return sparse.dense(len(self), default)

    @cached_property
    def unrolled(self) -> EventTable:
        """The events, and the captured calls as further rows."""
        calls, n = self.captured, len(self)
        none = np.full(len(calls), -1)
        more = {
            **{name: getattr(calls, name) for name in ("ts_ns", "dur_ns", "kind", "name")},
            "category": np.zeros_like(none),
            "lane": len(self.lanes) + calls.lane,
        }
        columns = dict(self.columns)
        for name in (*LIST_COLUMNS, "sequence", "fwd_thread"):
            values = getattr(calls, name)
            rows = np.flatnonzero(values >= 0)
            old = columns.get(name, SparseColumn(rows[:0], values[:0]))
            columns[name] = SparseColumn(
                np.concatenate([old.event, n + rows]), np.concatenate([old.value, values[rows]])
            )
        dense = {
            name: np.concatenate([getattr(self, name), more.get(name, none)]).astype(dtype)
            for name, dtype in EVENT_DTYPES.items()
        }
        other = replace(self, columns=columns, captured=CapturedCalls())
        return replace(other, **dense)  # type: ignore[arg-type]

    def frame(self, events: npt.ArrayLike | None = None) -> pd.DataFrame:
        """Events as a DataFrame (schema `frames.EVENTS`), a copy."""
        rows = np.arange(len(self)) if events is None else np.asarray(events, dtype=np.int64)
        lanes = self.lane[rows]
        return pd.DataFrame(
            {
                "event": rows,
                "ts_ns": self.ts_ns[rows],
                "dur_ns": self.dur_ns[rows],
                "kind": categorical(self.kind[rows], EventKind.labels()),
                "name": self.names(rows),
                "category": self.symbols.array[self.category[rows]]
                if len(self)
                else np.empty(0, dtype=object),
                "pid": np.array(self.lanes.pid, dtype=object)[lanes],
                "tid": np.array(self.lanes.tid, dtype=object)[lanes],
                "device": self.device[rows].astype(np.int64),
                "stream": self.stream[rows],
                "correlation": self.correlation[rows],
                "external_id": self.external_id[rows],
            }
        )
