"""Jobs whose ranks lost device work: the path through it is not judged."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from htagraph.job.loading import load_job
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

pytestmark = pytest.mark.filterwarnings("ignore::htagraph.errors.IncompleteTraceWarning")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of two ranks of eight steps."""
    path = tmp_path_factory.mktemp("whole")
    simulate_job(training_job(ranks=2, steps=8, layers=3)).write(path)
    return path


def damaged(whole: Path, tmp_path: Path, *, ranks: Collection[int], first: float, n: int) -> Path:
    """The job, of which some ranks lack some kernels in a row from a share of them on."""
    folder = Path(shutil.copytree(whole, tmp_path / "job"))
    for rank in ranks:
        file = folder / f"rank{rank}.pt.trace.json.gz"
        trace = json.loads(gzip.decompress(file.read_bytes()))
        kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
        kernels.sort(key=lambda event: float(event["ts"]))
        begin = int(first * len(kernels))
        lost = {id(event) for event in kernels[begin : begin + n]}
        trace["traceEvents"] = [one for one in trace["traceEvents"] if id(one) not in lost]
        file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return folder


def test_a_whole_job_is_judged(whole: Path) -> None:
    """Nothing is lost."""
    verdict = load_job(whole).verdict()

    assert (bool(verdict.findings), verdict.damage) == (True, ())


def test_a_path_through_lost_device_work_is_not_judged(whole: Path, tmp_path: Path) -> None:
    """Both ranks lost a hundred kernels in a row."""
    verdict = load_job(damaged(whole, tmp_path, ranks=(0, 1), first=0.3, n=100)).verdict()

    assert verdict.withheld.startswith("device work or launches of")
    assert "Load the job without rank" in verdict.withheld
    assert "have no device work" in verdict.damage[0]


def test_a_little_lost_work_is_only_told(whole: Path, tmp_path: Path) -> None:
    """Twelve kernels of one rank."""
    verdict = load_job(damaged(whole, tmp_path, ranks=(1,), first=0.4, n=12)).verdict()

    assert verdict.findings
    assert verdict.damage[0].startswith("Rank 1: ")
    assert "have no device work" in verdict.damage[0]
