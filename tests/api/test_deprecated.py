"""Old names work for one release, and say what the new ones are."""

from __future__ import annotations

import pytest

from htagraph import Job, JobPath, Trace, load_job
from htagraph.synth import timeline
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

GRAPH = Trace.from_events(timeline("cpu 1 |[op [launch >a]]\nstream 7 |[k <a ]")).compile()
OF_A_RANK = [
    (GRAPH, "at", "interval"),
    (GRAPH.select(kind="op"), "at", "window"),
    (GRAPH.critical_path(), "claims", "attributed_time"),
]


@pytest.mark.parametrize(
    ("owner", "old", "new"), OF_A_RANK, ids=[" ".join(row[1:]) for row in OF_A_RANK]
)
def test_an_old_name_gives_what_the_new_one_gives(owner, old, new):
    """And warns."""
    with pytest.warns(DeprecationWarning, match=rf"\.{old} is now \w+\.{new}"):
        assert getattr(owner, old) is getattr(owner, new)


def test_old_names_of_jobs(tmp_path):
    """Meetings were matched collectives, legs rank segments."""
    simulate_job(training_job(ranks=2, steps=1, layers=1)).write(tmp_path)
    job: Job = load_job(tmp_path)
    path: JobPath = job.critical_path()

    with pytest.warns(DeprecationWarning, match=r"job\.meetings is now job\.collectives\(\)"):
        assert job.meetings is job.collectives()
    with pytest.warns(DeprecationWarning, match=r"path\.legs is now path\.rank_segments"):
        assert path.legs is path.rank_segments
    with pytest.warns(DeprecationWarning, match=r"path\.claims is now path\.attributed_time"):
        assert path.claims is path.attributed_time
