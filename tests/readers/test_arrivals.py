"""Files that arrive: when they are whole, and which belong together."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from htagraph.readers.arrivals import Arrivals, has_end, together
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

WHOLE = b'{"traceEvents": [{"ph": "X"}]}\n'


@pytest.mark.parametrize(
    ("content", "has"),
    [
        (WHOLE, True),
        (WHOLE[:-4], False),
        (b"", False),
        (gzip.compress(WHOLE), True),
        (gzip.compress(WHOLE)[:-1], False),
        (gzip.compress(WHOLE[:-4]), False),
    ],
    ids=["json", "cut json", "empty", "gzip", "cut gzip", "gzip of cut json"],
)
def test_a_file_has_an_end(tmp_path: Path, content: bytes, *, has: bool) -> None:
    """Whatever its name says: that of its content."""
    (tmp_path / "a.json.gz").write_bytes(content)

    assert has_end(tmp_path / "a.json.gz") is has


def test_a_new_file_has_to_settle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden files and those of hidden folders never count; a known one no more."""
    (tmp_path / ".htagraph").mkdir()
    for name in ("a.json", ".b.json", ".htagraph/c.json", "d.txt"):
        (tmp_path / name).write_bytes(WHOLE)
    arrivals = Arrivals(tmp_path)
    first, changing = arrivals.whole(), arrivals.changing
    monkeypatch.setattr("htagraph.readers.arrivals.SETTLED_S", 0.0)
    second = arrivals.whole()
    arrivals.known.add(arrivals.sign(tmp_path / "a.json"))

    assert (first, changing, second) == ([], [tmp_path / "a.json"], [tmp_path / "a.json"])
    assert (arrivals.whole(), arrivals.changing) == ([], [])


def test_a_file_that_is_cut_off_is_left_alone_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not waited for, either."""
    monkeypatch.setattr("htagraph.readers.arrivals.SETTLED_S", 0.0)
    file, arrivals = tmp_path / "a.json", Arrivals(tmp_path)
    file.write_bytes(WHOLE[:-4])
    before = arrivals.whole(), arrivals.changing
    file.write_bytes(WHOLE)

    assert before == ([], [])
    assert arrivals.whole() == [file]


def test_ranks_of_a_job_are_together(tmp_path: Path) -> None:
    """As soon as the last one is there; what is no trace is apart."""
    simulate_job(training_job(ranks=2, steps=2)).write(tmp_path)
    (tmp_path / "settings.json").write_text('{"schema": 1, "nodes": []}')
    ranks = sorted(tmp_path.glob("*rank*"))
    [one], _ = together(ranks[:1])
    [both], _ = together(ranks)

    assert (one.is_complete, both.is_complete) == (False, True)
    assert both.files == ranks
