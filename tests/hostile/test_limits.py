"""Limits are what `docs/limits.md` says they are."""

from __future__ import annotations

import re
from pathlib import Path

from htagraph.comparison import run_profile
from htagraph.compiler.structure import MAX_STREAMS
from htagraph.job import job, rehearsal
from htagraph.job.delay_costs import MOST_COMPARED
from htagraph.job.kept_steps import MOST_COLLECTIVES
from htagraph.model.recording import MAX_RANKS
from htagraph.readers.beside import ncu_tables
from htagraph.readers.byte_stream import MAX_RATIO
from htagraph.readers.kineto.compiled.lexer import MAX_DEPTH
from htagraph.readers.kineto.header import MAX_TIME_NS
from htagraph.readers.kineto.trace_document import MAX_BROKEN, MAX_DOCUMENTS, MAX_VALUE
from htagraph.replay import latent_waits

_DOCUMENT = Path(__file__).parents[2] / "docs" / "limits.md"


def test_the_limits_that_are_stated_are_those_there_are() -> None:
    stated = re.findall(r"^\| ([^|]+) \| ([0-9,]+)", _DOCUMENT.read_text(), re.MULTILINE)
    more = f"{job._EVENTS_OF_A_RANK:,}"

    assert {what: int(most.replace(",", "")) for what, most in stated} == {
        "an event, or a value outside the events": MAX_VALUE,
        "lists and objects within each other": MAX_DEPTH,
        "JSON documents that follow each other in a file": MAX_DOCUMENTS,
        "broken keys and values outside the events": MAX_BROKEN,
        "what gzip unpacks to, from 256 MiB on": MAX_RATIO,
        "times, before and after 1970": MAX_TIME_NS,
        "streams that run work, of all devices": MAX_STREAMS,
        "streams whose work a call for the whole device waits for in a replay, those used last": (
            latent_waits._MOST_STREAMS
        ),
        "ranks of a job": MAX_RANKS - 1,
        "collectives of a job, of its last steps": MOST_COLLECTIVES,
        "waits of a job that `delay_costs` compares, the longest": MOST_COMPARED,
        f"events of a job that a report replays, with {more} more for each rank": (
            job._REPLAYED_EVENTS
        ),
        "events of a job that `what-if` replays": rehearsal._MOST_EVENTS,
        "values of Nsight Compute": ncu_tables._MOST_VALUES,
        "a stored baseline": run_profile._MOST_BYTES,
    }
