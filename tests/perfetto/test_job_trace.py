"""The trace of a job in the trace processor: all ranks on one clock, and a path that tiles."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from htagraph.errors import OutputError
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from tests.real_traces import located
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

pytestmark = pytest.mark.perfetto

ON_TOP = "select s.* from slice s join track t on s.track_id = t.id where t.name = 'Critical path'"
TILES = f"""
select count(*), sum(dur), max(ts + dur) - min(ts), sum(gap) from (
  select ts, dur, coalesce(ts - lag(ts + dur) over (order by ts, id), 0) != 0 as gap
  from ({ON_TOP} and s.depth = 1)
)
"""  # noqa: S608  text of our own
STAYS = f"select name, ts, dur from ({ON_TOP} and s.depth = 0) order by ts"  # noqa: S608
ARROWS = """
with ends as (
  select slice_out as a, slice_in as b from flow union all select slice_in, slice_out from flow
)
select p.ts, r.name, o.name, c.name, extract_arg(o.arg_set_id, 'debug.critical') from ends
join slice p on p.id = a join slice r on r.id = p.parent_id join slice o on o.id = b
left join thread_track k on o.track_id = k.id left join thread using (utid)
left join process c using (upid)
where p.category = 'critical_path' order by p.ts
"""
EVENTS = "select count(*) from slice where category is null or category != 'critical_path'"
KERNEL_ENDS = """
select max(ts + dur) - min(ts + dur) from (
  select ts, dur, row_number() over (partition by track_id order by ts) as number from slice
  where name like 'nccl%' and category != 'critical_path'
) group by number
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Four ranks whose clocks are off by up to 20 ms, of which rank 2 is late."""
    program = training_job(
        ranks=4, tensor=2, steps=2, layers=2, straggler=2, max_offset_ns=20_000_000
    )
    folder = tmp_path_factory.mktemp("job")
    simulate_job(program).write(folder)
    return load_job(folder)


def test_the_path_of_the_job_is_one_track(tmp_path: Path, ask, job: Job) -> None:
    """Its segments tile the window; the row above them names their rank."""
    path = job.critical_path()
    tiles, stays = ask(path.to_perfetto(tmp_path / "x.pftrace"), TILES, STAYS)
    assert tiles == [[len(path.segments), path.dur_ns, path.dur_ns, 0]]
    totals = Counter()
    for name, _, dur in stays:
        totals[name] += dur
    assert totals == {
        f"rank {rank}": dur for rank, dur in path.breakdown(by="rank")["dur_ns"].items()
    }
    assert len(stays) == 1 + np.count_nonzero(np.diff(path.segments["rank"]))


def test_every_event_of_every_rank_is_there(tmp_path: Path, ask, job: Job) -> None:
    """None is lost where the parts are joined."""
    (events,) = ask(job.critical_path().to_perfetto(tmp_path / "x.pftrace.gz"), EVENTS)
    assert events == [[sum(summary.n_events for summary in job.summaries.values())]]


def test_arrows_lead_from_segments_to_events_of_their_rank(tmp_path: Path, ask, job: Job) -> None:
    """One for each segment about an event, which is marked as critical."""
    path = job.critical_path()
    (arrows,) = ask(path.to_perfetto(tmp_path / "x.pftrace"), ARROWS)
    about = path.segments[path.segments["event"] >= 0]
    assert len(arrows) == len(about)
    for (_, stay, event, process, critical), (rank, name) in zip(
        arrows, zip(about["rank"], about["name"], strict=True), strict=True
    ):
        assert (stay, event, critical) == (f"rank {rank}", name, 1)
        assert process is None or process.endswith(f", rank {rank}")


def test_ranks_are_on_one_clock(tmp_path: Path, ask) -> None:
    """The all-reduces of all ranks end together, though their clocks are off by milliseconds."""
    program = training_job(ranks=4, steps=2, layers=2, straggler=2, max_offset_ns=20_000_000)
    simulate_job(program).write(tmp_path / "job")
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


@pytest.mark.public("torchrec/sleep_on_rank2")
def test_a_real_job_is_whole(tmp_path: Path, ask) -> None:
    """Four ranks of torchrec, of which rank 2 sleeps."""
    job = load_job(located("torchrec/sleep_on_rank2"))
    path = job.critical_path()
    tiles, events = ask(path.to_perfetto(tmp_path / "x.pftrace"), TILES, EVENTS)
    assert tiles == [[len(path.segments), path.dur_ns, path.dur_ns, 0]]
    assert events == [[sum(summary.n_events for summary in job.summaries.values())]]
