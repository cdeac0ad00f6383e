"""What is said of a job depends neither on the numbers of its ranks, nor on what clocks show."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.job.job import Job
from htagraph.job.loading import load_job
from tests.job.simulated import FEW
from tests.real_traces import cases, located, traces_in
from tests.synth.program import JobProgram
from tests.synth.simulator import simulate_job
from tests.synth.strategies import jobs
from tests.synth.training import training_job

Document = dict[str, Any]

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

_REAL = (
    *("captures/jobs/ddp_sleep_4", "captures/pipelines/pp4_1f1b_slow"),
    *("torchrec/sleep_on_rank2", "dlrm", "megatron-tp2"),
)


class Said(NamedTuple):
    """What must not change: causes, the window, and what each change would save."""

    causes: list[str]
    costs_ns: list[int]
    dur_ns: int
    saved: list[tuple[int, int, int]]

    def is_that_of(self, other: Said) -> bool:
        """Whether two say the same, to 100 ns: costs are rounded rank by rank."""
        return (
            (self.causes, self.dur_ns, len(self.saved))
            == (other.causes, other.dur_ns, len(other.saved))
        ) and all(
            np.allclose(own, others, rtol=0, atol=100)
            for own, others in ((self.costs_ns, other.costs_ns), (self.saved, other.saved))
        )


def said(documents: Sequence[Document]) -> Said:
    """What is said of a job of some traces."""
    with tempfile.TemporaryDirectory() as folder:
        for document in documents:
            file = Path(folder) / f"rank{document['distributedInfo']['rank']:03}.json.gz"
            file.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
        return of_job(load_job(folder))


def of_job(job: Job) -> Said:
    """What is said of a job."""
    verdict, tried = job.verdict(), job.opportunities()
    saved = zip(tried["saves_ns"], tried["low_ns"], tried["high_ns"], strict=True)
    found = verdict.findings
    costs_ns = [one.cost_ns or 0 for one in found]
    return Said([one.cause for one in found], costs_ns, verdict.dur_ns, sorted(saved))


def renumbered(documents: Sequence[Document], number: Mapping[int, int]) -> list[Document]:
    """The traces with other ranks, in the lists of groups, too."""

    def ranks(text: str) -> str:
        return json.dumps([number[rank] for rank in json.loads(text)])

    out = []
    for document in documents:
        told = dict(document["distributedInfo"])
        told["rank"] = number[told["rank"]]
        for group in told["pg_config"] if isinstance(told.get("pg_config"), list) else ():
            group |= {"ranks": [number[rank] for rank in group.get("ranks", ())]}
        events = [
            event | {"args": event["args"] | {_GROUP: ranks(event["args"][_GROUP])}}
            if event.get("args", {}).get(_GROUP, "")[1:2].isdecimal()
            and "..." not in event["args"][_GROUP]
            else event
            for event in document["traceEvents"]
        ]
        out.append(document | {"distributedInfo": told, "traceEvents": events})
    return out


def put_forward(document: Document, by_us: float) -> Document:
    """The trace of a rank whose clock shows a later time."""
    events = [
        event | {"ts": event["ts"] + by_us} if "ts" in event else event
        for event in document["traceEvents"]
    ]
    return document | {"traceEvents": events}


_GROUP = "Process Group Ranks"


def written(program: JobProgram) -> list[Document]:
    """The traces of a simulated job."""
    return [json.loads(rank.to_json()) for rank in simulate_job(program).ranks]


@pytest.mark.slow
@FEW
@given(program=jobs(max_ranks=6), seed=st.integers(0, 1_000), by_us=st.integers(-2_000, 2_000))
def test_simulated_jobs(program: JobProgram, seed: int, by_us: int) -> None:
    """Law: random jobs of one step, clocks off by 20 ms."""
    documents, rng = written(program), random.Random(seed)  # noqa: S311  no secret
    before, ranks = said(documents), list(range(len(documents)))
    moved = rng.choice(ranks)
    documents[moved] = put_forward(documents[moved], by_us)
    assert said(documents).is_that_of(before)
    shuffled = rng.sample(ranks, len(ranks))
    assert said(renumbered(documents, dict(zip(ranks, shuffled, strict=True)))).is_that_of(before)


@pytest.mark.some(1)
@pytest.mark.parametrize("delay", ["python", "kernel", "data_loading"])
def test_a_late_rank(delay: str) -> None:
    """Rank 1 of four is late in three steps: whatever its number, and that of the others."""
    program = training_job(
        ranks=4, steps=3, layers=3, straggler=1, delay=delay, delay_ns=3_000_000,
        max_offset_ns=20_000_000, jitter_ns=2_000, seed=11,
    )  # fmt: skip
    documents = written(program)
    before = said(documents)
    assert said([put_forward(documents[0], 1_100), *documents[1:]]).is_that_of(before)
    assert said(renumbered(documents, {0: 3, 1: 0, 2: 1, 3: 2})).is_that_of(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(_REAL))
def test_real_jobs(name: str) -> None:
    """Law: ranks in reverse, and one after the other put forward, if its clock is its own."""
    documents = [
        json.loads(data if path.suffix != ".gz" else gzip.decompress(data), strict=False)
        for path in traces_in(located(name))
        for data in [path.read_bytes()]
    ]
    ranks = sorted(document["distributedInfo"]["rank"] for document in documents)
    before = said(documents)
    assert said(renumbered(documents, dict(zip(ranks, reversed(ranks), strict=True)))).is_that_of(
        before
    )
    if not name.startswith("captures"):
        assert said([put_forward(documents[0], 37), *documents[1:]]).is_that_of(before)
        assert said([*documents[:-1], put_forward(documents[-1], -1_100)]).is_that_of(before)
