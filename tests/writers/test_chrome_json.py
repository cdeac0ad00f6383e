"""The original trace with the path added: every byte of it is still there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.errors import TraceFormatError
from htagraph.writers.chrome_json import write_chrome_json
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """The JSON file of a simulated rank."""
    path = tmp_path / "rank.json"
    path.write_bytes(simulate(training_rank(steps=1, layers=2)).to_json())
    return path


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_without_what_was_added_it_is_the_original(
    tmp_path: Path, original: Path, name: str
) -> None:
    """What was added stands in one piece, at the end of the list of events."""
    out = hg.load(original).compile().critical_path().to_chrome_json(tmp_path / name)
    data = out.read_bytes()
    text, old = (gzip.decompress(data) if name.endswith("gz") else data), original.read_bytes()
    first = text.index(b',\n{"name":"process_name","ph":"M","pid":2000000000')
    assert text[:first] + text[first + len(text) - len(old) :] == old
    assert len(json.loads(text)["traceEvents"]) > len(json.loads(old)["traceEvents"])


def test_segments_are_begin_end_pairs_in_exact_decimals(tmp_path: Path, original: Path) -> None:
    """Microseconds with three digits are nanoseconds; nothing is rounded."""
    path = hg.load(original).compile().critical_path()
    events = json.loads(
        path.to_chrome_json(tmp_path / "x.json").read_bytes(), parse_float=str, parse_int=str
    )["traceEvents"]
    base_time_ns = json.loads(original.read_bytes()).get("baseTimeNanoseconds", 0)

    def ns(text: str) -> int:
        whole, _, rest = text.partition(".")
        return int(whole) * 1000 + int(rest.ljust(3, "0") or 0) + base_time_ns

    added = [event for event in events if event.get("cat") == "critical_path"]
    begins = [ns(event["ts"]) for event in added if event["ph"] == "B"]
    ends = [ns(event["ts"]) for event in added if event["ph"] == "E"]
    assert begins == path.segments["start_ns"].tolist()
    assert ends == (path.segments["start_ns"] + path.segments["dur_ns"]).tolist()


def test_arrows_never_run_back_in_time(tmp_path: Path, original: Path) -> None:
    """Viewers drop those that do."""
    path = hg.load(original).compile().critical_path()
    events = json.loads(path.to_chrome_json(tmp_path / "x.json").read_bytes())["traceEvents"]
    added = [event for event in events if event.get("cat") == "critical_path"]
    starts = {event["id"]: event["ts"] for event in added if event["ph"] == "s"}
    ends = {event["id"]: event["ts"] for event in added if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(starts[number] <= ends[number] for number in starts)


def test_a_trace_may_be_replaced_by_itself(original: Path) -> None:
    """The new file takes the old one's place only when it is whole."""
    old = original.read_bytes()
    hg.load(original).compile().critical_path().to_chrome_json(original)
    assert len(original.read_bytes()) > len(old)


def test_a_trace_that_is_cut_off_is_refused(tmp_path: Path, original: Path) -> None:
    """Nothing is written, and the error says what to do."""
    path = hg.load(original).compile().critical_path()
    cut = original.read_bytes()[:2000]
    with pytest.raises(TraceFormatError, match=r"no end\. Hint: repair"):
        write_chrome_json(
            tmp_path / "x.json", cut, events=path.dag.events, segments=path.segments, base_time_ns=0
        )
    with pytest.raises(TraceFormatError, match="cannot be read"):
        write_chrome_json(
            tmp_path / "x.json",
            gzip.compress(cut)[:-20],
            events=path.dag.events,
            segments=path.segments,
            base_time_ns=0,
        )
    assert not (tmp_path / "x.json").exists()
