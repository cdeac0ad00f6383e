"""The trace of a job in the trace processor: all ranks on one clock, and a path that tiles."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.errors import OutputError
from htagraph.job.job import Job
from htagraph.job.loading import load_job

pytestmark = pytest.mark.perfetto

ON_TOP = "select s.* from slice s join track t on s.track_id = t.id where t.name = 'Critical path'"
TILES = f"""
select count(*), sum(dur), max(ts + dur) - min(ts), sum(gap) from (
  select ts, dur, coalesce(ts - lag(ts + dur) over (order by ts, id), 0) != 0 as gap
  from ({ON_TOP})
)
"""  # noqa: S608  text of our own
HOPS = """
select a.ts + a.dur, b.ts, ta.name, tb.name from flow
join slice a on a.id = slice_out join slice b on b.id = slice_in
join track ta on a.track_id = ta.id join track tb on b.track_id = tb.id
where a.category = 'critical_path' and b.category = 'critical_path' order by a.ts
"""
BY_RANK = """
select t.name, sum(s.dur) from slice s
join track t on s.track_id = t.id join track p on t.parent_id = p.id
where p.name = 'Critical path' group by t.name order by 2 desc
"""
EVENTS = "select count(*) from slice where category is null or category != 'critical_path'"
KERNEL_ENDS = """
select max(ts + dur) - min(ts + dur) from (
  select ts, dur, row_number() over (partition by track_id order by ts) as number from slice
  where name like 'nccl%' and category != 'critical_path'
) group by number
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Four ranks whose clocks are off by up to 20 ms, of which rank 2 is late."""
    program = hg.synth.training_job(
        ranks=4, tensor=2, steps=2, layers=2, straggler=2, max_offset_ns=20_000_000
    )
    hg.synth.simulate_job(program).write(tmp_path / "job")
    return load_job(tmp_path / "job")


def test_the_path_of_the_job_tiles_its_window(tmp_path: Path, ask, job: Job) -> None:
    """On top; below it the time of each rank."""
    path = job.critical_path()
    tiles, by_rank = ask(path.to_perfetto(tmp_path / "x.pftrace"), TILES, BY_RANK)
    assert tiles == [[len(path.segments), path.dur_ns, path.dur_ns, 0]]
    assert by_rank == [
        [f"rank {rank}", dur] for rank, dur in path.breakdown(by="rank")["dur_ns"].items()
    ]


def test_every_event_of_every_rank_is_there(tmp_path: Path, ask, job: Job) -> None:
    """None is lost where the parts are joined."""
    (events,) = ask(job.critical_path().to_perfetto(tmp_path / "x.pftrace.gz"), EVENTS)
    assert events == [[sum(summary.n_events for summary in job.summaries.values())]]


def test_an_arrow_leads_to_the_rank_where_the_path_goes_on(tmp_path: Path, ask, job: Job) -> None:
    """One per hop, from the late rank to the one that waited, when the wait ended."""
    path = job.critical_path()
    (hops,) = ask(path.to_perfetto(tmp_path / "x.pftrace"), HOPS)
    ranks = path.segments["rank"].to_numpy()
    before = np.flatnonzero(np.diff(ranks))
    assert len(before) > 0
    assert [[out, into] for _, _, out, into in hops] == [
        [f"Critical path, rank {ranks[at]}", f"Critical path, rank {ranks[at + 1]}"]
        for at in before
    ]
    assert [end for end, _, _, _ in hops] == [start for _, start, _, _ in hops]


def test_ranks_are_on_one_clock(tmp_path: Path, ask) -> None:
    """The all-reduces of all ranks end together, though their clocks are off by milliseconds."""
    program = hg.synth.training_job(
        ranks=4, steps=2, layers=2, straggler=2, max_offset_ns=20_000_000
    )
    hg.synth.simulate_job(program).write(tmp_path / "job")
    (apart,) = ask(
        load_job(tmp_path / "job").critical_path().to_perfetto(tmp_path / "x.pftrace"), KERNEL_ENDS
    )
    assert max(value for (value,) in apart) < 15_000


def test_nothing_half_written_is_left(tmp_path: Path, job: Job) -> None:
    """A folder that does not exist is an error before any rank is read."""
    with pytest.raises(OutputError, match="the folder does not exist"):
        job.critical_path().to_perfetto(tmp_path / "absent" / "x.pftrace")
    with tempfile.TemporaryDirectory() as folder:
        job.critical_path().to_perfetto(Path(folder) / "x.pftrace")
        assert [entry.name for entry in Path(folder).iterdir()] == ["x.pftrace"]


@pytest.mark.real
def test_a_real_job_is_whole(tmp_path: Path, ask, real_traces: Path) -> None:
    """Four ranks of torchrec, of which rank 2 sleeps."""
    job = load_job(real_traces / "torchrec" / "sleep_on_rank2")
    path = job.critical_path()
    tiles, events = ask(path.to_perfetto(tmp_path / "x.pftrace"), TILES, EVENTS)
    assert tiles == [[len(path.segments), path.dur_ns, path.dur_ns, 0]]
    assert events == [[sum(summary.n_events for summary in job.summaries.values())]]
