"""Results of a simulation: traces as tables and as files, and the truth about them."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from htagraph.errors import OutputError, WindowNotFoundError
from htagraph.model.events import EventTable
from htagraph.model.schema import Schema, duration, identifier, instant, name
from htagraph.model.units import human_count, human_duration
from tests.synth.causes import causes_frame
from tests.synth.device import Item
from tests.synth.kineto_json import kineto_json
from tests.synth.program import Clock
from tests.synth.recorder import Recorder
from tests.synth.rows import Row, event_table
from tests.synth.truth import Mark, Tile, tiles, truth_frame

_STEP = "ProfilerStep#"
_WHOLE = -1

TRUE_COLLECTIVES = Schema(
    "TRUE_COLLECTIVES",
    {
        "group": name("process group"),
        "seq": identifier("position among the collectives of the group"),
        "name": name("kernel"),
        "operation": name("what the collective does"),
        "rank": identifier("rank of this member"),
        "event": identifier("row of the rank's event table", unit="event"),
        "start_ns": instant("true start of the kernel"),
        "end_ns": instant("true end of the kernel"),
        "wait_ns": duration("how long the kernel waited for the last of those it needs"),
        "last_rank": identifier("rank that came last of those it needs; itself if it did not wait"),
    },
)


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedRank:
    """One rank: its trace, and its true critical path.

    Times are those of the rank's own clock.
    """

    recorder: Recorder
    clock: Clock
    origin_ns: int
    first: Mark | None
    ends: Mapping[int, Mark]
    n_ties: int

    @property
    def rank(self) -> int:
        """Number of the rank."""
        return self.recorder.program.rank

    def _local_ns(self, true_ns: int) -> int:
        """The time that the rank's clock shows."""
        return self.clock.local_ns(true_ns, self.origin_ns)

    def _local_row(self, row: Row) -> Row:
        """An event in the rank's own time."""
        ts_ns = self._local_ns(row.ts_ns)
        return replace(row, ts_ns=ts_ns, dur_ns=self._local_ns(row.end_ns) - ts_ns)

    @property
    def rows(self) -> list[Row]:
        """The events in the order of the file; new objects at each call if the clock is off."""
        rows = self.recorder.captured
        return rows if self.clock == Clock() else [self._local_row(row) for row in rows]

    @cached_property
    def events(self) -> EventTable:
        """The trace as a reader would return it."""
        flows = [point._replace(ts_ns=self._local_ns(point.ts_ns)) for point in self.recorder.flows]
        devices = (self.recorder.program.properties,)
        events = event_table(self.rows, flows, self.recorder.lane_names())
        return replace(events, devices=devices)

    def to_json(self) -> bytes:
        """The trace as Kineto JSON."""
        flows = [point._replace(ts_ns=self._local_ns(point.ts_ns)) for point in self.recorder.flows]
        return kineto_json(self.rows, flows, self.recorder.lane_names(), self.recorder.program)

    def write(self, path: str | Path) -> Path:
        """Write the trace as Kineto JSON, compressed if it ends in ``.gz``; return the path."""
        target = Path(path)
        data = self.to_json()
        return _write(
            target,
            gzip.compress(data, compresslevel=5, mtime=0) if target.suffix == ".gz" else data,
        )

    @property
    def truth(self) -> pd.DataFrame:
        """The true critical path of the whole trace (schema `TRUTH`)."""
        return truth_frame(
            self._path(self.ends[_WHOLE], self.first.ts_ns) if self.first is not None else []
        )

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The steps: ``name``, ``start_ns``, ``dur_ns``, ``event``."""
        rows = [
            (i, row)
            for i, row in enumerate(self.rows)
            if row.name.startswith(_STEP) and i in self.ends
        ]
        return pd.DataFrame(
            [(row.name, row.ts_ns, row.dur_ns, event) for event, row in rows],
            columns=["name", "start_ns", "dur_ns", "event"],
        )

    def step_truth(self, name: str) -> pd.DataFrame:
        """The true critical path of a step or other annotation (schema `TRUTH`).

        It leads to the end of the annotation, and is cut where the annotation starts.
        """
        for event, mark in self.ends.items():
            if event != _WHOLE and self.recorder.captured[event].name == name:
                return truth_frame(self._path(mark, self.recorder.captured[event].ts_ns))
        raise WindowNotFoundError(name, self.steps["name"], where=f"simulated rank {self.rank}")

    @property
    def causes(self) -> pd.DataFrame:
        """What each start and end of a host event, and each start of device work, waited for.

        One row per node of the graph but for ends of device work (schema `CAUSES`).
        """
        return causes_frame(self.recorder)

    def __repr__(self) -> str:
        """Say how large it is."""
        events = human_count(len(self.recorder.captured), "event")
        steps = human_count(len(self.steps), "step")
        length = human_duration(int(self.truth["dur_ns"].sum()))
        return f"SimulatedRank(rank={self.rank}, {events}, {steps}, {length})"

    def _path(self, last: Mark, start_ns: int) -> list[Tile]:
        """Tiles of the path in the rank's own time."""
        return [
            tile._replace(
                start_ns=self._local_ns(tile.start_ns),
                end_ns=self._local_ns(tile.end_ns),
                event=max(tile.event - self.recorder.first_row, -1),
            )
            for tile in tiles(last, start_ns)
        ]


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedJob:
    """The ranks of a simulated job, and the truth across them."""

    ranks: tuple[SimulatedRank, ...]
    clocks: Sequence[Clock]
    culprit: int
    members: Mapping[tuple[str, int], Mapping[int, Item]]
    n_ties: int

    @property
    def truth(self) -> pd.DataFrame:
        """The true critical path of the job (schema `TRUTH`), in true time.

        It hops to the rank that came last at a collective, at the instant at which it came.
        """
        last = max((rank.ends[_WHOLE] for rank in self.ranks), key=lambda mark: mark.ts_ns)
        start_ns = min(rank.first.ts_ns for rank in self.ranks if rank.first is not None)
        return truth_frame(tiles(last, start_ns, is_local=False))

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row per collective and member (schema `TRUE_COLLECTIVES`), in true time."""
        return pd.DataFrame(
            [
                (*key, *_member(rank, item, members))
                for key, members in sorted(self.members.items())
                for rank, item in sorted(members.items())
            ],
            columns=list(TRUE_COLLECTIVES.columns),
        ).astype({name: column.dtype for name, column in TRUE_COLLECTIVES.columns.items()})

    def __repr__(self) -> str:
        """Say how large it is."""
        n_events = sum(len(rank.recorder.captured) for rank in self.ranks)
        size = f"{human_count(len(self.ranks), 'rank')}, {human_count(n_events, 'event')}"
        collectives = human_count(len(self.members), "collective")
        return f"SimulatedJob({size}, {collectives}, culprit={self.culprit})"

    def write(self, folder: str | Path) -> list[Path]:
        """Write one compressed file per rank into a folder, which is made; return their paths."""
        width = len(str(len(self.ranks) - 1))
        return [
            rank.write(Path(folder) / f"rank{rank.rank:0{width}d}.pt.trace.json.gz")
            for rank in self.ranks
        ]


def _member(
    rank: int, item: Item, members: Mapping[int, Item]
) -> tuple[str, str, int, int, int, int, int, int]:
    """The columns of `TRUE_COLLECTIVES` for one member, after group and position."""
    assert item.start is not None
    assert item.end is not None
    needed = item.work.waits_for(rank)  # type: ignore[union-attr]
    came = {other: members[other].arrival for other in sorted(needed)}
    starts = {rank: item.start} | {other: one.start for other, one in came.items() if one}
    arrivals = {other: mark.ts_ns for other, mark in starts.items() if mark is not None}
    last = max(arrivals, key=lambda other: arrivals[other])
    wait_ns = arrivals[last] - item.start.ts_ns
    operation = item.work.operation  # type: ignore[union-attr]
    return (
        item.work.name,
        operation,
        rank,
        item.event,
        item.start.ts_ns,
        item.end.ts_ns,
        wait_ns,
        last,
    )


def _write(target: Path, data: bytes) -> Path:
    """Write a file through a temporary one beside it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".synth-") as folder:
            part = Path(folder) / target.name
            part.write_bytes(data)
            part.replace(target)
    except OSError as exc:
        raise OutputError(
            str(exc), path=target, hint="choose a folder that can be written."
        ) from exc
    return target
