"""Simulated ranks as exports of Nsight Systems: SQLite, in an old schema and in one of today."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind

START_NS = 5_000_000
"""The clock of an export when its session starts."""

_MEMORIES = ("Pageable", "Pinned", "Device", "Array")
_WAYS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
_TYPES = ("Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
_NONE = 4_294_967_295
_MACHINE = 1 << 48

_PLACE = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
SCHEMA = {
    "StringIds": "id, value",
    "ENUM_NSYS_EVENT_TYPE": "id, name, label",
    "ENUM_CUDA_MEM_KIND": "id, name, label",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs, utcTime, localTime, systemClockNs",
    "TARGET_INFO_SYSTEM_ENV": "globalVid, devStateName, name, nameEnum, value",
    "TARGET_INFO_GPU": "id, name, cuDevice, smCount, threadsPerWarp, maxWarpsPerSm, totalMemory",
    "TARGET_INFO_GPU_METRICS": "typeId, sourceId, typeName, metricId, metricName",
    "META_DATA_EXPORT": "name, value",
    "PROCESSES": "globalPid, pid, name",
    "ThreadNames": "nameId, priority, globalTid",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start, end, eventClass, globalTid, correlationId, nameId, returnValue"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_PLACE}, demangledName, shortName, registersPerThread, gridX, gridY, gridZ,"
        "blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, graphNodeId, graphId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_PLACE}, bytes, copyKind, srcKind, dstKind, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_PLACE}, value, bytes, graphNodeId, memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_PLACE}, graphId, graphExecId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_PLACE}, syncType, eventId, eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "timestamp, deviceId, contextId, streamId, correlationId, globalPid, eventId, eventSyncId"
    ),
    "NVTX_EVENTS": (
        "start, end, eventType, text, globalTid, endGlobalTid, textId, domainId, jsonText"
    ),
    "OSRT_API": "start, end, eventClass, globalTid, nameId, returnValue",
    "PROFILER_OVERHEAD": "start, end, globalTid, nameId, returnValue",
    "GPU_METRICS": "timestamp, typeId, metricId, value",
    "SCHED_EVENTS": "start, cpu, isSchedIn, globalTid",
}
"""Columns of each table, as far as they are read."""

_NOT_YET = {
    "TARGET_INFO_SESSION_START_TIME": {"systemClockNs"},
    "CUPTI_ACTIVITY_KIND_KERNEL": {"graphId"},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {"eventSyncId"},
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": {"eventSyncId"},
    "NVTX_EVENTS": {"jsonText", "text"},
}
"""Columns that an old export does not have; its texts are all numbered."""


def global_id(pid: int, tid: int = 0) -> int:
    """A process or thread as exports number it."""
    return _MACHINE | pid << 24 | tid


class NsysFile:
    """The rows of an export that is to be written."""

    def __init__(self, *, old: bool = False) -> None:
        self.old = old
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in SCHEMA}
        self._strings: dict[str, int] = {}
        self._recorded: dict[int, int] = {}  # when each event was recorded, by correlation id
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_NAME", value="NVIDIA Nsight Systems")
        self.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="node-1")
        for number, name in {
            34: "NvtxMark",
            59: "NvtxPushPopRange",
            60: "NvtxStartEndRange",
            75: "NvtxDomainCreate",
        }.items():
            self.add("ENUM_NSYS_EVENT_TYPE", id=number, name=name, label=name)
        for number, name in enumerate(_MEMORIES):
            self.add("ENUM_CUDA_MEM_KIND", id=number, name=name.upper(), label=name)

    def string(self, text: str) -> int:
        """The number of a text."""
        return self._strings.setdefault(text, 7 + 3 * len(self._strings))

    def add(self, table: str, **values: Any) -> None:
        """Add a row; columns that are not named are NULL."""
        self.rows[table].append(values)

    def starts(self, utc_ns: int) -> int:
        """Say when the session starts; return the time that is 0 on the clock of the export."""
        clock_ns = 0 if self.old else START_NS
        self.add(
            "TARGET_INFO_SESSION_START_TIME", utcEpochNs=utc_ns + clock_ns, systemClockNs=clock_ns
        )
        return utc_ns

    def write(self, path: Path) -> Path:
        """The export as a file."""
        with closing(sqlite3.connect(path)) as connection:
            for number, text in enumerate(self._strings):
                self.add("StringIds", id=7 + 3 * number, value=text)
            for table, columns in SCHEMA.items():
                missing = _NOT_YET.get(table, set()) if self.old else set()
                names = [
                    name for name in columns.replace(" ", "").split(",") if name not in missing
                ]
                rows = self.rows[table]
                if rows or table == "StringIds":
                    connection.execute(f"CREATE TABLE {table} ({', '.join(names)})")
                    marks = ", ".join("?" * len(names))
                    connection.executemany(
                        f"INSERT INTO {table} VALUES ({marks})",  # noqa: S608
                        [[row.get(name) for name in names] for row in rows],
                    )
            connection.commit()
        return path

    def add_process(self, events: EventTable, name: str = "python") -> None:
        """Add what a rank recorded: what Nsight Systems would have recorded of it."""
        values = {column: events.column(column) for column in events.columns}
        pids = {pid for pid, tid in zip(events.lanes.pid, events.lanes.tid, strict=True)
                if isinstance(pid, int) and isinstance(tid, int) and pid > 100}  # fmt: skip
        pid = min(pids)
        self.add("PROCESSES", globalPid=global_id(pid), pid=pid, name=name)
        names = events.names()
        for row in range(len(events)):
            of_row = {column: of_all[row] for column, of_all in values.items()}
            self._add_event(events, row, {"name": str(names[row]), "pid": pid} | of_row)

    def _add_event(self, events: EventTable, row: int, values: Mapping[str, Any]) -> None:
        name, pid = values["name"], values["pid"]
        lane = events.lanes.pid[events.lane[row]], events.lanes.tid[events.lane[row]]
        base_ns = self.rows["TARGET_INFO_SESSION_START_TIME"][0]
        base_ns = base_ns["utcEpochNs"] - base_ns["systemClockNs"]
        times = {
            "start": int(events.ts_ns[row]) - base_ns,
            "end": int(events.end_ns[row]) - base_ns,
        }
        kind = EventKind(int(events.kind[row]))
        if kind in (EventKind.OP, EventKind.ANNOTATION, EventKind.RUNTIME):
            thread = times | {"globalTid": global_id(*lane)}
            if kind is EventKind.RUNTIME:
                self.add(
                    "CUPTI_ACTIVITY_KIND_RUNTIME",
                    **thread,
                    eventClass=0,
                    correlationId=int(events.correlation[row]),
                    nameId=self.string(f"{name}_v7000"),
                )
                if name.startswith("cudaEventRecord"):
                    self._recorded[int(events.correlation[row])] = thread["start"]
                return
            text = name
            if kind is EventKind.OP:
                sequence = int(values.get("sequence", -1))
                text += f", seq = {sequence}" if sequence >= 0 else ""
                text += f", op_id = {row + 1}"
            self.add_range(text, **thread)
            return
        if kind not in (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.SYNC):
            return
        device, stream = int(events.device[row]), int(events.stream[row])
        place = times | {
            "deviceId": device,
            "contextId": device + 1,
            "streamId": stream if stream >= 0 else _NONE,
            "correlationId": int(events.correlation[row]),
            "globalPid": global_id(pid),
        }
        if kind is EventKind.KERNEL:
            geometry = {
                to: int(values.get(of, 1))
                for of, to in zip(
                    ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
                    ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
                    strict=True,
                )
            }
            number = self.string(name)
            self.add("CUPTI_ACTIVITY_KIND_KERNEL", **place, demangledName=number, **geometry)
        elif kind is EventKind.MEMCPY:
            way, ends = name.removeprefix("Memcpy ").rstrip(")").split(" (")
            source, target = (_MEMORIES.index(end) for end in ends.split(" -> "))
            self.add(
                "CUPTI_ACTIVITY_KIND_MEMCPY",
                **place,
                bytes=int(values.get("bytes", 0)),
                copyKind=_WAYS[way],
                srcKind=source,
                dstKind=target,
            )
        elif kind is EventKind.MEMSET:
            self.add("CUPTI_ACTIVITY_KIND_MEMSET", **place, bytes=0, memKind=2)
        else:
            self._add_wait(name, place, values)

    def _add_wait(self, name: str, place: dict[str, Any], values: Mapping[str, Any]) -> None:
        """A record of a wait; old versions number types from 0, and the device is often wrong."""
        record = int(values.get("wait_on_event_record", -1))
        waited = {"eventId": _NONE, "eventSyncId": 0}
        if record > 0:
            waited = {"eventId": 40, "eventSyncId": record}
            self.add(
                "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                timestamp=self._recorded.get(record),
                deviceId=place["deviceId"],
                contextId=place["contextId"],
                streamId=int(values["wait_on_stream"]),
                correlationId=record,
                globalPid=place["globalPid"],
                **waited,
            )
        number = _TYPES.index(name) - (1 if self.old else 0)
        row = {**place, "deviceId": 0, "syncType": number, **waited}
        self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **row)

    def add_range(self, text: str, **values: Any) -> None:
        """An NVTX range of a thread."""
        values = {"eventType": 59, "domainId": 0} | values
        texts = {"textId": self.string(text)} if self.old else {"text": text}
        self.add("NVTX_EVENTS", **texts, **values)

    def add_call(self, name: str, thread: int, start: int, end: int | None, **values: Any) -> None:
        """A call of CUDA's API."""
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            nameId=self.string(name),
            globalTid=thread,
            start=start,
            end=end,
            **values,
        )


def simulated_file(path: Path, ranks: Sequence[EventTable], *, old: bool = False) -> Path:
    """An export of some simulated ranks, one process each."""
    file = NsysFile(old=old)
    file.starts(min(int(events.ts_ns.min()) for events in ranks) - START_NS)
    for events in ranks:
        file.add_process(events)
    return file.write(path)
