"""Breaks jobs.

Ranks of jobs are damaged as `tests.fuzzing.traces` damages traces; ranks also vanish, are cut off,
are of another job, claim to be others, or are exchanged. Whatever is left is asked for its path
across ranks and for everything else, and gives an answer, or an error of the package.
"""

from __future__ import annotations

import gzip
import json
import random
import tempfile
import warnings
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from htagraph.errors import CaptureNotChosenError, GraphError, HTAGraphError
from htagraph.job.job import JOB_QUESTIONS
from htagraph.job.loading import load_job
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import job_document
from tests.fuzzing.traces import damaged
from tests.real_traces import CAPTURES
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

_N_ASKED = 6
"""Questions to each job; over all jobs, each question is asked many times."""

_RANKS = (0, 0, 1, 2, 3, 7, -1, 2**31, 2**63, "0", "x", None, 1.5, [1])


@cache
def sources() -> tuple[tuple[dict[str, Any], ...], ...]:
    """The traces of each rank of some jobs."""
    jobs = (
        training_job(ranks=2, steps=2, layers=1, straggler=1),
        training_job(ranks=3, steps=1, layers=2, max_offset_ns=3_000_000),
        training_job(ranks=4, steps=2, layers=1, straggler=2, delay_ns=5_000_000),
        training_job(ranks=2, steps=2, layers=1, pipeline=2, micro_batches=2),
    )
    found = []
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            simulate_job(job).write(folder)
            files = sorted(Path(folder).iterdir())
            found.append(tuple(load_document(file) for file in files))
    zoo = sorted((CAPTURES / "jobs" / "zoo_2").glob("rank*.gz"))
    return (*found, tuple(load_document(file) for file in zoo))


def load_document(file: Path) -> dict[str, Any]:
    """The JSON of a trace."""
    document: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return document


def mutated(rng: random.Random) -> bytes:
    """The files of a job with some damage, as a zip archive."""
    documents = [json.loads(json.dumps(each)) for each in rng.choice(sources())]
    if rng.random() < 0.1:
        documents.append(json.loads(json.dumps(rng.choice(rng.choice(sources())))))
    if rng.random() < 0.1:
        told = [document.get("distributedInfo") for document in documents]
        for document, other in zip(documents, rng.sample(told, len(told)), strict=True):
            document["distributedInfo"] = other
    texts = []
    for document in documents:
        if rng.random() < 0.5:
            damaged(document, rng)
        if rng.random() < 0.1:
            document["distributedInfo"] = {
                "rank": rng.choice(_RANKS),
                "world_size": rng.choice((*_RANKS, 10**9)),
            }
        text = json.dumps(document).encode()
        texts.append(text[: rng.randrange(len(text))] if rng.random() < 0.05 else text)
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        for rank, text in enumerate(texts):
            if rng.random() > 0.05:
                files.writestr(f"rank{rank}.json", text)
    return archive.getvalue()


def answered(data: bytes) -> str:
    """How it went to load and ask a job; raise what no job deserves."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(BytesIO(data)) as files:
        files.extractall(folder)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                return _asked(Path(folder), random.Random(len(data)))  # noqa: S311  no secret
        except GraphError:
            raise
        except HTAGraphError as error:
            return type(error).__name__


def _asked(folder: Path, rng: random.Random) -> str:
    """Everything about a job, or what of it one has time for."""
    try:
        job = load_job(folder, on_error="skip")
    except CaptureNotChosenError:
        job = load_job(folder, on_error="skip", capture="latest")
    path = job.critical_path()
    assert int(path.segments["dur_ns"].sum()) == path.dur_ns
    for question in (*JOB_QUESTIONS, *rng.sample(list(QUESTIONS), _N_ASKED)):
        try:
            job.ask(question)
        except GraphError:
            raise
        except HTAGraphError:  # it needs what this job does not have
            continue
    json.dumps(job_document(JobSummary(job)), allow_nan=False)
    return "answered" if job.failures.empty else "answered without some ranks"
