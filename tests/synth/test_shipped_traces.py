"""The simulated traces of the repository are what the simulator writes today."""

from __future__ import annotations

import gzip

import pytest

import htagraph as hg
from htagraph.cli.demo import PLANTED
from tests.synth.shipped_traces import DEMO, NOTEBOOKS, ROOT, shipped_traces


def test_they_are_what_the_simulator_writes():
    """Otherwise run `python -m tests.synth.shipped_traces`."""
    stale = [
        path.as_posix()
        for path, rank in shipped_traces().items()
        if gzip.decompress((ROOT / path).read_bytes()) != rank.to_json()
    ]

    assert stale == []


def test_the_captured_one_is_a_capture_of_the_tests():
    captured = ROOT / "tests/data/captures/single/loader0.pt.trace.json.gz"

    assert hg.demo_trace("captured").read_bytes() == captured.read_bytes()


def test_the_notebooks_have_no_others():
    kept = {path.relative_to(ROOT) for path in (ROOT / NOTEBOOKS).rglob("*.gz")}

    assert kept == {path for path in shipped_traces() if NOTEBOOKS in path.parents}


def test_they_are_small():
    sizes = [path.stat().st_size for path in (ROOT / DEMO).rglob("*.gz")]

    assert sum(sizes) < 1_000_000


@pytest.mark.parametrize("name", [*PLANTED, "serving", "compiled"])
def test_a_demo_trace_can_be_loaded_by_its_name(name):
    assert hg.load(hg.demo_trace(name)).compile().dur_ns > 0


def test_the_demo_job_has_four_ranks():
    assert len(hg.load_job(hg.demo_trace("job"))) == 4


def test_an_unknown_name_is_answered_with_all():
    with pytest.raises(
        hg.errors.QueryError, match=r"'dataloder'.*did you mean 'dataloader'.*, job"
    ):
        hg.demo_trace("dataloder")
