"""The profiler of a simulated rank: it records rows and flow points, in true time."""

from __future__ import annotations

from dataclasses import dataclass, field

from htagraph.model.kinds import EventKind
from htagraph.synth.device import Item
from htagraph.synth.program import Annotation, Collective, Op, Program
from htagraph.synth.rows import FlowPoint, Lane, LaneName, Row

__all__ = ["Recorder"]

_SPAN_LANE: Lane = ("Spans", "PyTorch Profiler")
_GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_LEVELS = ("none", "op", "kernel", "seq")


@dataclass(eq=False, repr=False)
class Recorder:
    """The growing trace of one rank."""

    program: Program
    rows: list[Row] = field(default_factory=list)
    flows: list[FlowPoint] = field(default_factory=list)
    forward: dict[int, Row] = field(default_factory=dict)
    device_ranges: dict[tuple[int, int], list[Item]] = field(default_factory=dict)
    records: dict[str, tuple[int, int]] = field(default_factory=dict)
    n_correlations: int = 0
    n_external_ids: int = 0

    @property
    def pid(self) -> int:
        """Process id of the rank."""
        return 4_200 + self.program.rank

    def _add(self, row: Row) -> int:
        """Keep a row; return its number."""
        self.rows.append(row)
        return len(self.rows) - 1

    def open_range(self, action: Op | Annotation, tid: int, now_ns: int) -> int:
        """Begin an operator or annotation."""
        self.n_external_ids += 1
        kind, category = EventKind.ANNOTATION, "user_annotation"
        if isinstance(action, Op):
            kind, category = EventKind.OP, "cpu_op"
        row = Row(
            action.name,
            kind,
            category,
            self._thread(tid),
            now_ns,
            0,
            external_id=self.n_external_ids,
        )
        if isinstance(action, Op) and action.sequence >= 0:
            row.values = {"sequence": action.sequence, "fwd_thread": int(action.is_backward)}
            if action.is_backward and (forward := self.forward.get(action.sequence)) is not None:
                self.flows.append(FlowPoint(0, action.sequence, forward.lane, forward.ts_ns))
                self.flows.append(FlowPoint(2, action.sequence, row.lane, now_ns))
            self.forward.setdefault(action.sequence, row)
        return self._add(row)

    def open_call(self, name: str, tid: int, now_ns: int, external_id: int) -> int:
        """Begin an API call, with a correlation id of its own."""
        self.n_correlations += 1
        category = (
            "cuda_driver"
            if name.startswith("cu") and not name.startswith("cuda")
            else "cuda_runtime"
        )
        row = Row(name, EventKind.RUNTIME, category, self._thread(tid), now_ns, 0)
        row.correlation, row.external_id = self.n_correlations, external_id
        return self._add(row)

    def close(self, event: int, now_ns: int) -> None:
        """End a row."""
        self.rows[event].dur_ns = now_ns - self.rows[event].ts_ns

    def add_device(self, work_name: str, kind: EventKind, stream: int, call: int) -> int:
        """Keep device work of a call; its times follow when the simulation is over."""
        categories = {EventKind.MEMCPY: "gpu_memcpy", EventKind.MEMSET: "gpu_memset"}
        device = self.program.device
        row = Row(
            work_name, kind, categories.get(kind, "kernel"), (device, stream), 0, 0, device, stream
        )
        row.correlation, row.external_id = self.rows[call].correlation, self.rows[call].external_id
        return self._add(row)

    def describe(self, item: Item, op: int, graph: tuple[int, int] | None) -> None:
        """Note bytes, graph node and collective metadata of device work launched in an operator."""
        values = self.rows[item.event].values
        if graph is not None:
            values["graph_id"], values["graph_node"] = graph
        if not isinstance(item.work, Collective):
            if item.work.n_blocks:
                geometry = (item.work.n_blocks, 1, 1, item.work.n_threads, 1, 1)
                values.update(zip(_GEOMETRY, geometry, strict=True))
            if item.work.n_bytes:
                values["bytes"] = item.work.n_bytes
                values["memory_bandwidth"] = item.work.n_bytes / max(item.work.dur_ns, 1)
            return
        if not item.work.is_recorded:
            return
        level = _LEVELS.index(self.program.metadata)
        metadata = _metadata(item.work, item.ordinal if level == _LEVELS.index("seq") else -1)
        if level >= _LEVELS.index("kernel"):
            values.update(metadata)
        if level >= _LEVELS.index("op") and op >= 0:
            self.rows[op].values.update(metadata)
            if item.work.operation in (
                "broadcast",
                "reduce",
            ):  # the root, as its place in the group
                self.rows[op].values["comms_rank"] = item.work.group.ranks.index(item.work.root)

    def add_sync(self, name: str, call: int, stream: int, event: str | None = None) -> None:
        """Keep the profiler's record of a wait."""
        if not self.program.sync_records:
            return
        device, source = self.program.device, self.rows[call]
        row = Row(
            name,
            EventKind.SYNC,
            "cuda_sync",
            (device, stream),
            source.ts_ns,
            source.dur_ns,
            device,
            stream,
        )
        row.correlation, row.external_id = source.correlation, source.external_id
        if event is not None:
            record, on_stream = self.records.get(event, (-1, -1))
            row.values["wait_on_stream"] = on_stream
            row.values["wait_on_event_record"] = (
                self.rows[record].correlation if record >= 0 else -1
            )
            row.values["wait_on_event"] = (
                sorted(self.records).index(event) if event in self.records else -1
            )
        self._add(row)

    def settle(self, items: list[Item]) -> None:
        """Fill in the times of device work and project annotations onto streams; then close."""
        for item in items:
            assert item.start is not None
            assert item.end is not None
            row = self.rows[item.event]
            row.ts_ns, row.dur_ns = item.start.ts_ns, item.end.ts_ns - item.start.ts_ns
        for (annotation, stream), inside in self.device_ranges.items():
            source = self.rows[annotation]
            begin = min(self.rows[item.event].ts_ns for item in inside)
            end = max(self.rows[item.event].end_ns for item in inside)
            kind, lane = EventKind.DEVICE_ANNOTATION, (self.program.device, stream)
            row = Row(source.name, kind, "gpu_user_annotation", lane, begin, end - begin, *lane)
            row.external_id = source.external_id
            self._add(row)
        if self.rows:
            begin, end = min(row.ts_ns for row in self.rows), max(row.end_ns for row in self.rows)
            self._add(
                Row("PyTorch Profiler (0)", EventKind.SPAN, "Trace", _SPAN_LANE, begin, end - begin)
            )
        self.device_ranges.clear()
        self.forward.clear()

    def lane_names(self) -> dict[Lane, LaneName]:
        """Names of the lanes, as the metadata events of the file give them."""
        names: dict[Lane, LaneName] = {}
        for row in self.rows:
            pid, tid = row.lane
            if row.lane == _SPAN_LANE:
                names[row.lane] = LaneName("python", "PyTorch Profiler", "", 536_870_912, 0)
            elif row.device < 0:
                names[row.lane] = LaneName("python", f"thread {tid} (python)", "CPU", self.pid, 0)
            else:
                thread = f"stream {tid}" if row.stream >= 0 else f"Device {pid}"
                names[row.lane] = LaneName(
                    "python", thread, f"GPU {pid}", 5_000_000 + row.device, row.stream
                )
        return names

    def _thread(self, tid: int) -> Lane:
        """The lane of a thread; the first one has the process id, as on Linux."""
        return (self.pid, self.pid + tid - 1)


def _metadata(collective: Collective, ordinal: int) -> dict[str, int | float | str]:
    """The metadata that PyTorch writes of a collective."""
    gathers = "allgather" in collective.operation
    scatters = "reduce_scatter" in collective.operation
    n_ranks = len(collective.group.ranks)
    values: dict[str, int | float | str] = {
        "collective": collective.operation,
        "msg_in": collective.n_elements * (n_ranks if scatters else 1),
        "msg_out": collective.n_elements * (n_ranks if gathers else 1),
        "group_size": n_ranks,
        "dtype": collective.dtype,
        "group_name": collective.group.name,
        "group_description": collective.group.description,
        "group_ranks": str(list(collective.group.ranks)),
    }
    if collective.operation in ("send", "recv"):
        values["src_rank"] = collective.root
        values["dst_rank"] = next(
            rank for rank in (*collective.group.ranks, -1) if rank != collective.root
        )
    if ordinal >= 0:
        values["seq"] = ordinal
    return values
