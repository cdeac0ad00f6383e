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
from htagraph.model.colors import COLORS
from htagraph.model.colors import LATE as COLOR_OF_LATE
from htagraph.model.colors import WAITS as WAITING
from htagraph.model.kinds import Bound
from htagraph.readers.perfetto.reader import read_opening
from tests.job.simulated import loaded, meet, three
from tests.real_traces import located
from tests.synth.program import Spend, Synchronize
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

pytestmark = pytest.mark.perfetto

COMMUNICATION = COLORS[Bound.COMMUNICATION]

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
where p.category = 'critical_path' and o.category != 'critical_path' order by p.ts
"""
WAITS = """
select t.name, s.name, s.ts, s.dur, extract_arg(s.arg_set_id, 'correlation_id') from slice s
join track t on s.track_id = t.id join track p on t.parent_id = p.id
where p.name = 'Findings: who waits for whom'
order by extract_arg(t.source_arg_set_id, 'sibling_order_rank'), s.ts
"""
WAIT_ARROWS = """
select s.name, t.name, a.ts + a.dur, b.name, u.name, b.ts from flow
join slice a on a.id = slice_out join track t on a.track_id = t.id join slice s on s.id = a.id
join slice b on b.id = slice_in join track u on b.track_id = u.id
where a.name glob 'late*' order by u.name
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


def test_segments_of_a_job_are_in_the_words_of_the_report(tmp_path: Path, ask, late: Job) -> None:
    """All words that start a slice are those of the tables."""
    path = late.critical_path()
    query = f"select distinct substr(name, 1, instr(name || ' · ', ' · ') - 1) from ({ON_TOP} and s.depth = 1)"  # noqa: E501, S608
    (found,) = ask(path.to_perfetto(tmp_path / "x.pftrace"), query)

    assert {words for (words,) in found} == {
        "CPU operators",
        "communication",
        "launch latency",
        "GPU synchronization",
        "untraced code",
    }


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


LATE = {"late rank 1": "Rank 1 is late, costs 40%"}


@pytest.fixture(scope="module")
def late() -> Job:
    """Three ranks that leave a collective together; then rank 1 is late by 80 us, rank 2 by 10."""
    bodies = (
        (meet(), Synchronize(), Spend(us * 1_000), meet(), Synchronize()) for us in (0, 90, 10)
    )
    return loaded(three(*bodies))


def test_a_late_rank_is_above_those_that_wait_for_it(tmp_path: Path, ask, late: Job) -> None:
    """The first collective at 6 us; the second at 24 us, 34 us, and 114 us."""
    file = late.critical_path().to_perfetto(tmp_path / "x.pftrace", findings=LATE)
    (waits,) = ask(file, WAITS)
    collective, is_late, wait = (
        color.perfetto for color in (COMMUNICATION, COLOR_OF_LATE, WAITING)
    )

    assert waits == [
        ["rank 1", "all_reduce", 6_000, 10_000, collective],
        ["rank 1", "late, 2 ranks wait", 34_000, 80_000, is_late],
        ["rank 1", "all_reduce", 114_000, 10_000, collective],
        ["rank 0", "all_reduce", 6_000, 10_000, collective],
        ["rank 0", "waits for rank 1", 24_000, 90_000, wait],
        ["rank 0", "all_reduce", 114_000, 10_000, collective],
        ["rank 2", "all_reduce", 6_000, 10_000, collective],
        ["rank 2", "waits for rank 1", 34_000, 80_000, wait],
        ["rank 2", "all_reduce", 114_000, 10_000, collective],
    ]


def test_arrows_lead_from_a_late_arrival_to_those_that_waited(
    tmp_path: Path, ask, late: Job
) -> None:
    """They can continue when it has come."""
    (arrows,) = ask(late.critical_path().to_perfetto(tmp_path / "x.pftrace"), WAIT_ARROWS)

    assert arrows == [
        ["late, 2 ranks wait", "rank 1", 114_000, "all_reduce", "rank 0", 114_000],
        ["late, 2 ranks wait", "rank 1", 114_000, "all_reduce", "rank 2", 114_000],
    ]


def test_a_job_opens_at_its_late_rank(tmp_path: Path, late: Job) -> None:
    """At the arrival that others waited for, with the tracks of the rank."""
    path = late.critical_path()
    file = path.to_perfetto(tmp_path / "x.pftrace", findings=LATE)

    opens = {"last_ns": 126_000, "start_ns": 34_000, "end_ns": 114_000, "rank": 1}
    assert path.drawn(LATE).opening(path.origin_ns) == opens
    assert read_opening(file) == (opens, ["Rank 1 is late, costs 40%"])


def test_a_job_opens_at_the_first_finding(late: Job) -> None:
    """In its longest stretch; the rank is that of the path there."""
    path = late.critical_path()
    findings = {"GPU copies": "GPU copies", "communication": "Communication, costs 8%"}
    opens = path.drawn(findings).opening(path.origin_ns)

    assert (opens["start_ns"], opens["end_ns"] - opens["start_ns"], opens["rank"]) == (
        114_030,
        10_080,
        0,
    )


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
    file = path.to_perfetto(tmp_path / "x.pftrace", findings={"late rank 2": "Rank 2 is late"})
    tiles, events, waits, arrows = ask(file, TILES, EVENTS, WAITS, WAIT_ARROWS)
    assert tiles == [[len(path.segments), path.dur_ns, path.dur_ns, 0]]
    assert events == [[sum(summary.n_events for summary in job.summaries.values())]]
    assert waits[0][0] == "rank 2"
    longest = sorted((-dur, name) for track, name, _, dur, _ in waits if track == "rank 2")[:3]
    assert {name for _, name in longest} == {"late, 3 ranks wait"}
    assert {track for _, track, *_ in arrows} == {"rank 2"}
