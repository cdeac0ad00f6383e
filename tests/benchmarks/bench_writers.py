"""How long the writers take, beside the builder of the perfetto package.

    python tests/benchmarks/bench_writers.py [N_SLICES]

Made-up slices of one thread, nested three deep, with two arguments each and an arrow from every
tenth: what a trace of an eager model looks like. The builder gets the same slices and arguments,
without interning, as it offers none.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from htagraph.model.events import EventTable, LaneTable
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import SymbolTable
from htagraph.writers.pftrace import write_pftrace

N_NAMES = 200
Links = tuple[np.ndarray, np.ndarray]


def drawn(n: int) -> tuple[EventTable, Links]:
    """Slices and links."""
    number = np.arange(n)
    depth = number % 3
    symbols = SymbolTable((*(f"aten::operator_{k}" for k in range(N_NAMES)), "cpu_op"))
    events = EventTable(
        ts_ns=1_712_195_495_519_689_047 + number // 3 * 3000 + depth * 400,
        dur_ns=2900 - depth * 900,
        kind=np.full(n, EventKind.OP, dtype=np.int8),
        name=(number % N_NAMES).astype(np.int32),
        category=np.full(n, N_NAMES, dtype=np.int32),
        lane=np.zeros(n, dtype=np.int32),
        device=np.full(n, -1, dtype=np.int32),
        stream=np.full(n, -1, dtype=np.int64),
        correlation=number.astype(np.int64),
        external_id=number.astype(np.int64) * 7,
        symbols=symbols,
        lanes=LaneTable((1,), (1,), ("python",), ("main",), (0,), (0,), ("CPU",)),
    )
    tail = np.arange(0, n - 1, 10, dtype=np.int32)
    return events, (tail, tail + 1)


def write_ours(out: Path, events: EventTable, links: Links) -> None:
    """Write with this package."""
    write_pftrace(out, events, links=links)


def write_with_builder(out: Path, events: EventTable, links: Links) -> None:
    """Write with the perfetto package, a message at a time."""
    builder = TraceProtoBuilder()
    descriptor = builder.add_packet()
    descriptor.track_descriptor.uuid = 1
    flows = dict(zip(links[0].tolist(), range(len(links[0])), strict=True))
    flows |= dict(zip(links[1].tolist(), range(len(links[1])), strict=True))
    names, ends = events.names().tolist(), events.end_ns.tolist()
    open_slices: list[int] = []

    def end_until(ts_ns: int) -> None:
        while open_slices and ends[open_slices[-1]] <= ts_ns:
            packet = builder.add_packet()
            packet.timestamp, packet.trusted_packet_sequence_id = ends[open_slices.pop()], 1
            packet.track_event.type, packet.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, 1

    for row, ts_ns in enumerate(events.ts_ns.tolist()):
        end_until(ts_ns)
        packet = builder.add_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = ts_ns, 1
        event = packet.track_event
        event.type, event.track_uuid, event.name = TrackEvent.TYPE_SLICE_BEGIN, 1, names[row]
        event.categories.append("cpu_op")
        for name, values in (
            ("correlation", events.correlation),
            ("external_id", events.external_id),
        ):
            event.debug_annotations.add(name=name, int_value=int(values[row]))
        if row in flows:
            event.flow_ids.append(flows[row])
        open_slices.append(row)
    end_until(2**63 - 1)
    out.write_bytes(builder.serialize())


def main(n: int) -> None:
    """Print a table."""
    write_ours(Path(tempfile.mkdtemp()) / "warm.pftrace", *drawn(1000))
    events, links = drawn(n)
    ways: dict[str, tuple[Callable[..., None], str]] = {
        "htagraph": (write_ours, "x.pftrace"),
        "htagraph, compressed": (write_ours, "x.pftrace.gz"),
        "TraceProtoBuilder": (write_with_builder, "x.pftrace"),
    }
    print(f"{n:,} slices\n{'writer':24}{'s':>8}{'s per 1M':>12}{'MB':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name, (write, file) in ways.items():
            out = Path(folder) / file
            began = time.perf_counter()
            write(out, events, links)
            took = time.perf_counter() - began
            print(f"{name:24}{took:8.2f}{took / n * 1e6:12.2f}{out.stat().st_size / 1e6:10.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
