"""Collectives that some ranks lack, and clocks that no host has, are told."""

from __future__ import annotations

from pathlib import Path

import htagraph as hg
from tests.damage import read_job, write_job
from tests.real_traces import CAPTURES

JOB = CAPTURES / "jobs" / "ddp_2"


def _told(files: dict, folder: Path) -> list[str]:
    """What is said of a job whose files are changed."""
    return hg.load_job(write_job(files, folder)).damage()["consequence"].tolist()


def _changed(document: dict, change) -> dict:
    return document | {"traceEvents": [*filter(None, map(change, document["traceEvents"]))]}


def test_a_whole_job_lacks_nothing(tmp_path):
    assert _told(read_job(JOB), tmp_path) == []


def test_a_collective_that_one_rank_lost_is_told(tmp_path):
    """The second of three all-reduces of rank 1."""
    name, files = "rank1.pt.trace.json.gz", read_job(JOB)
    rows = [e for e in files[name]["traceEvents"] if e.get("name") == "gloo:all_reduce"]
    lost = sorted(rows, key=lambda event: event["ts"])[1]
    files[name] = _changed(files[name], lambda event: None if event is lost else event)
    (said,) = _told(files, tmp_path)

    assert said.startswith("1 of 4 collectives of rank 0 have no counterpart")


def test_a_clock_that_was_set_forward_on_one_rank_is_told(tmp_path):
    """By 2 s before the second of three all-reduces of rank 3: those of the others lack it."""
    name, files = "rank3.pt.trace.json.gz", read_job(CAPTURES / "jobs" / "ddp_sleep_4")
    rows = [e for e in files[name]["traceEvents"] if e.get("name") == "gloo:all_reduce"]
    at_us = sorted(event["ts"] for event in rows)[1] - 1
    files[name] = _changed(
        files[name],
        lambda event: event | {"ts": event["ts"] + 2e6} if event.get("ts", 0) > at_us else event,
    )
    said = _told(files, tmp_path)

    assert any("are not on rank 3, which recorded earlier and later ones" in one for one in said)


def test_ranks_of_one_host_with_other_clocks_are_told(tmp_path):
    """Rank 1 is 20 ms ahead."""
    name, files = "rank1.pt.trace.json.gz", read_job(JOB)
    files[name] = _changed(
        files[name], lambda event: event | {"ts": event["ts"] + 20_000} if "ts" in event else event
    )
    (said,) = _told(files, tmp_path)

    assert said.startswith("ranks 0, 1 are of host vm, but their clocks are")
