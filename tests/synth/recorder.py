"""The profiler of a simulated rank: it records rows and flow points, in true time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from htagraph.model.events import Lane
from htagraph.model.kinds import Bound, EventKind
from tests.synth.actions import Annotation, Op
from tests.synth.device import Item
from tests.synth.program import Machine, Program
from tests.synth.rows import FlowPoint, Row
from tests.synth.truth import Mark, Release
from tests.synth.work import Collective, Work

_SPAN_LANE: Lane = ("Spans", "PyTorch Profiler")
_GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_WARP = 32
_REGISTERS = 32
"""Of a thread: so few that they do not limit how many threads fit."""
_CHANNELS = Work("a kernel of NCCL", 0, n_blocks=24, n_threads=544)
"""The geometry of collectives: a block for each channel."""
_LEVELS = ("none", "op", "kernel", "seq")


@dataclass(eq=False, repr=False)
class Recorder:
    """The growing trace of one rank."""

    program: Program
    rows: list[Row] = field(default_factory=list)
    flows: list[FlowPoint] = field(default_factory=list)
    first_row: int = 0
    nodes: dict[int, Mark] = field(default_factory=dict)
    launched_by: dict[int, int] = field(default_factory=dict)
    thread_names: dict[int, str] = field(default_factory=dict)
    forward: dict[int, Row] = field(default_factory=dict)
    device_ranges: dict[tuple[int, int], list[Item]] = field(default_factory=dict)
    records: dict[str, tuple[int, int]] = field(default_factory=dict)
    n_correlations: int = 0
    n_external_ids: int = 0

    @property
    def pid(self) -> int:
        """Process id of the rank."""
        return 4_200 + self.program.rank

    @property
    def captured(self) -> list[Row]:
        """The rows of the trace."""
        return self.rows[self.first_row :] if self.first_row else self.rows

    def begin_capture(self) -> None:
        """Forget what was recorded so far."""
        self.first_row = len(self.rows)
        for seen in (self.flows, self.forward, self.device_ranges, self.nodes):
            seen.clear()

    def name_thread(self, thread: int, name: str) -> None:
        """Give a thread a name, if it gets one."""
        if name:
            self.thread_names[thread] = name

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
                self.flows.append(
                    FlowPoint("fwdbwd", 0, action.sequence, forward.lane, forward.ts_ns)
                )
                self.flows.append(FlowPoint("fwdbwd", 2, action.sequence, row.lane, now_ns))
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
        self.launched_by[len(self.rows)] = call
        return self._add(row)

    def describe(self, item: Item, op: int, graph: tuple[int, int] | None) -> None:
        """Note bytes, graph node and collective metadata of device work launched in an operator."""
        values = self.rows[item.event].values
        if graph is not None:
            values["graph_id"], values["graph_node"] = graph
        if not isinstance(item.work, Collective):
            if item.work.n_blocks and self.program.geometry:
                values.update(_geometry(item.work, self.program.machine))
            if item.work.n_bytes:
                values["bytes"] = item.work.n_bytes
                values["memory_bandwidth"] = item.work.n_bytes / max(item.work.dur_ns, 1)
            return
        if self.program.geometry:
            values.update(_geometry(_CHANNELS, self.program.machine))
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
        _record_late(items, self.program)
        for item in items:
            assert item.start is not None
            assert item.end is not None
            row = self.rows[item.event]
            row.ts_ns, row.dur_ns = item.start.ts_ns, item.end.seen_ns - item.start.ts_ns
            if item.event >= self.first_row:
                self.nodes[2 * item.event], self.nodes[2 * item.event + 1] = item.start, item.end
            self._hide(item.start, item.end)
        for (annotation, stream), inside in self.device_ranges.items():
            source = self.rows[annotation]
            begin = min(self.rows[item.event].ts_ns for item in inside)
            end = max(self.rows[item.event].end_ns for item in inside)
            kind, lane = EventKind.DEVICE_ANNOTATION, (self.program.device, stream)
            row = Row(source.name, kind, "gpu_user_annotation", lane, begin, end - begin, *lane)
            row.external_id = source.external_id
            self._add(row)
        if rows := self.captured:
            begin, end = min(row.ts_ns for row in rows), max(row.end_ns for row in rows)
            self._add(
                Row("PyTorch Profiler (0)", EventKind.SPAN, "Trace", _SPAN_LANE, begin, end - begin)
            )
        self.device_ranges.clear()
        self.forward.clear()

    def _hide(self, start: Mark, end: Mark) -> None:
        """Let time of device work belong to what was not captured, as far as it does."""
        if end.event < self.first_row:
            for mark in (start, end):
                mark.bound, mark.name = Bound.WORK_FROM_BEFORE_THE_PROFILE, ""
        elif start.release is not Release.LAUNCH and start.source < self.first_row:
            start.bound, start.name = Bound.WORK_FROM_BEFORE_THE_PROFILE, ""
            start.release = Release.BEFORE_CAPTURE

    def lane_names(self) -> dict[Lane, dict[str, str | int]]:
        """Names of the lanes, as the metadata events of the file give them."""
        return {row.lane: {"process": "python", **self._lane_name(row)} for row in self.captured}

    def _lane_name(self, row: Row) -> dict[str, str | int]:
        """Thread, label and place of the lane of a row."""
        pid, tid = row.lane
        if row.lane == _SPAN_LANE:
            return {"thread": "PyTorch Profiler", "process_sort": 536_870_912}
        if row.device < 0:
            name = self.thread_names.get(int(tid) - self.pid + 1, "python")
            thread = f"thread {tid} ({name})"
            return {"thread": thread, "process_labels": "CPU", "process_sort": self.pid}
        return {
            "thread": f"stream {tid}" if row.stream >= 0 else f"Device {pid}",
            "process_labels": f"GPU {pid}",
            "process_sort": 5_000_000 + row.device,
            "thread_sort": row.stream,
        }

    def _thread(self, tid: int) -> Lane:
        """The lane of a thread; the first one has the process id, as on Linux."""
        return (self.pid, self.pid + tid - 1)


def _record_late(items: Iterable[Item], program: Program) -> None:
    """Let recorded ends of device work lie after the true ones, as the machine does."""
    machine = program.machine
    if not machine.late_end_ns:
        return
    late = random.Random(f"late ends {program.seed}")  # noqa: S311 - no secret
    by_stream = groupby(sorted(items, key=lambda item: item.stream), key=lambda item: item.stream)
    for _, group in by_stream:
        found = list(group)
        for item, following in zip(found, [*found[1:], None], strict=True):
            assert item.end is not None
            seen_ns = item.end.ts_ns + late.randint(0, machine.late_end_ns)
            if machine.late_across_streams and following is not None:
                assert following.start is not None
                seen_ns = min(seen_ns, following.start.ts_ns)
            item.end.seen_ns = max(seen_ns, item.end.ts_ns)


def _geometry(work: Work, machine: Machine) -> dict[str, int | float | str]:
    """What is recorded of a kernel's grid and, of a known device, how it is occupied."""
    values: dict[str, int | float | str] = dict(
        zip(_GEOMETRY, (work.n_blocks, 1, 1, work.n_threads, 1, 1), strict=True)
    )
    values |= {"registers": _REGISTERS, "shared_memory": 0}
    if machine.n_sms:
        warps = -(-work.n_threads // _WARP)
        blocks = work.n_blocks / machine.n_sms
        resident = min(blocks, machine.resident_blocks(work))
        values["blocks_per_sm"], values["warps_per_sm"] = blocks, blocks * warps
        values["occupancy"] = float(
            round(min(100 * resident * warps * _WARP / machine.threads_per_sm, 100))
        )
    return values


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
