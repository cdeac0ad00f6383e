"""The original trace with the path added: every byte of it is still there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.errors import TraceFormatError
from htagraph.writers.chrome_json import with_added, write_chrome_json
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

TEXT = st.text(alphabet='ab\\"[]{}:, \n', max_size=12)
JSON = st.recursive(
    TEXT | st.integers() | st.none(),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(TEXT, child, max_size=3),
    max_leaves=8,
)


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
    """What was added is one piece, at the start of the list of events."""
    out = hg.load(original).compile().critical_path().to_chrome_json(tmp_path / name)
    data = out.read_bytes()
    text, old = (gzip.decompress(data) if name.endswith("gz") else data), original.read_bytes()
    first = text.index(b'\n{"name":"process_name","ph":"M","pid":2000000000')
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


def added_to(text: bytes, size: int) -> bytes:
    """The text with one event more, read in pieces of a size."""
    pieces = (text[first : first + size] for first in range(0, len(text), size))
    return b"".join(with_added(pieces, b'"new"'))


@given(JSON, JSON, st.lists(JSON, max_size=4), st.sampled_from([None, 1]), st.integers(60, 99))
def test_an_added_event_is_the_first_and_nothing_else_changes(
    before: object, after: object, events: list[object], indent: int | None, size: int
) -> None:
    """Law: whatever stands around the list, and wherever the pieces are cut."""
    document = {"a[": before, "traceEvents": ["old", *events], "z": after}
    text = json.dumps(document, indent=indent).encode()

    assert json.loads(added_to(text, size)) == {
        **document,
        "traceEvents": ["new", "old", *events],
    }


@given(st.lists(JSON, max_size=4))
def test_a_bare_list_is_a_list_of_events(events: list[object]) -> None:
    """Chrome's format has two forms; the list alone is one."""
    assert json.loads(added_to(json.dumps(events).encode(), 999)) == ["new", *events]


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"traceEvents": [{"a": "]"', b'{"y": "\\"traceEvents\\": ["}']
)
def test_a_list_that_is_absent_or_cut_off_is_refused(text: bytes) -> None:
    """A text that looks like the key is none."""
    with pytest.raises(ValueError, match="no end"):
        added_to(text, 99)
