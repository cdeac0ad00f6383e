"""A trace holds what a reader returned, for any format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.model.recording import Origin, Recording, Repair
from htagraph.run import trace as trace_module
from htagraph.synth import timeline
from tests.benchmarks.bench_windows import closeness
from tests.real_traces import located
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

EVENTS = timeline("""
    cpu 1    |{ProfilerStep#1        }
    cpu 1    | [aten::mm [launch >a]]
    stream 7 |                [gemm <a]
""")


class Arguments:
    """Args of events in memory."""

    def decode(self, events: Any) -> list[dict[str, Any]]:
        """The row of each event as its args."""
        return [{"row": int(event)} for event in events]

    def raw(self, events: Any) -> list[bytes]:
        """Empty events."""
        return [b"{}" for _ in events]


def foreign(source: Any, **_: Any) -> Recording:
    """Read a format that is not Kineto's."""
    return Recording(
        EVENTS,
        rank=3,
        rank_source="file name",
        world_size=8,
        repairs=(Repair("torn page", 2, 70, "left out"),),
        skipped={"python_function": 5},
        origin=Origin(Path(source), 1_000, Arguments(), {"tool": "other"}),
    )


@pytest.fixture
def trace(monkeypatch):
    """Load a file of another format, for which `load` needs one line."""
    is_foreign = (lambda source: str(source).endswith(".other"), foreign)
    monkeypatch.setattr(trace_module, "_READERS", (is_foreign, *trace_module._READERS))
    return hg.load("rank3.other")


def test_load_asks_the_reader_of_the_format(trace):
    """The trace repeats what the reader found."""
    assert (trace.rank, trace.rank_source, trace.world_size) == (3, "file name", 8)
    assert (trace.path, trace.metadata) == (Path("rank3.other"), {"tool": "other"})
    assert trace.repairs["kind"].tolist() == ["torn page"]
    assert (trace.has_unread_stacks, trace.args([2, 0])) == (True, [{"row": 2}, {"row": 0}])


def test_other_formats_stay_with_their_reader(trace):
    """A new reader changes nothing for the old one."""
    assert len(hg.load(b"[]").events) == 0


def test_the_graph_keeps_the_origin_and_not_the_file(trace):
    """Path and saved graph know where the events come from."""
    graph = trace.compile()

    assert graph.origin == graph.critical_path().origin == graph.select().origin
    assert graph.origin.source == Path("rank3.other")


def test_a_saved_graph_knows_its_file_and_base_time(trace, tmp_path):
    """The args are read from the file, which may be gone."""
    origin = hg.TraceGraph.open(trace.compile().save(tmp_path / "graph.npz")).origin

    assert (origin.path, origin.base_time_ns) == (Path("rank3.other").resolve(), 1_000)
    assert origin.args is None


def test_events_at_hand_have_no_origin():
    """Nothing was skipped or repaired, and there are no args."""
    trace = hg.Trace.from_events(EVENTS, rank=2)

    assert (trace.rank, trace.rank_source, trace.path) == (2, "given", None)
    assert (len(trace.repairs), dict(trace.skipped), trace.metadata) == (0, {}, {})
    assert trace.args([0]) == [{}]


def test_a_named_window_is_read_with_as_much_again_around_it(tmp_path):
    """Steps 0 to 5: of step 3, its neighbours are read, too, and no others."""
    path = simulate(training_rank(steps=6, layers=1)).write(tmp_path / "rank.json")
    whole, part = hg.load(path), hg.load(path, window="ProfilerStep#3")

    start_ns, dur_ns = whole.steps.loc[3, ["start_ns", "dur_ns"]]
    first_ns, last_ns = start_ns - dur_ns, start_ns + 2 * dur_ns
    events = whole.events
    wanted = (events["ts_ns"] < last_ns) & (events["ts_ns"] + events["dur_ns"] > first_ns)
    assert len(part.events) == wanted.sum() < len(events) // 2 + 1
    assert "ProfilerStep#3" in set(part.steps["name"])
    assert "ProfilerStep#0" not in set(part.steps["name"])
    for word in ("3", "ProfilerStep#3*"):
        assert part.events.equals(hg.load(path, window=word).events)


def test_a_named_window_is_explained_as_in_the_whole_trace(tmp_path):
    """Path and bounds, where nothing is learnt from the steps that were not read."""
    path = simulate(training_rank(steps=6, layers=2)).write(tmp_path / "rank.json")
    whole, part = (
        hg.load(path, window=window).compile().window("ProfilerStep#3").critical_path()
        for window in (None, "ProfilerStep#3")
    )
    shown = ["start_ns", "dur_ns", "bound", "name"]
    assert whole.segments[shown].astype(str).equals(part.segments[shown].astype(str))


def test_one_of_several_windows_of_a_name_is_read_by_its_place(tmp_path):
    """Operators of one name: the last one."""
    path = simulate(training_rank(steps=3, layers=1)).write(tmp_path / "rank.json")
    events = hg.load(path).events
    name = events.loc[events["kind"] == "op", "name"].mode()[0]
    starts = events.loc[events["name"] == name, "ts_ns"]

    with pytest.warns(hg.errors.AmbiguousWindowWarning):
        first = hg.load(path, window=name)
    last = hg.load(path, window=name, instance=-1)
    assert first.events["ts_ns"].max() < starts.max()
    assert starts.max() in set(last.events["ts_ns"])
    assert len(last.events) < len(events)


@pytest.mark.parametrize("word", ["median", "1ms:2ms", "trace"])
def test_what_only_a_whole_trace_can_tell_is_no_window_to_be_read(tmp_path, word):
    """Which step is the median one depends on all of them."""
    path = simulate(training_rank(steps=2, layers=1)).write(tmp_path / "rank.json")
    with pytest.raises(hg.errors.QueryError, match="needs the whole trace"):
        hg.load(path, window=word)
    with pytest.raises(hg.errors.WindowNotFoundError):
        hg.load(path, window="ProfilerStep#77")


@pytest.mark.public("torchrec/resnet18")
def test_a_step_of_a_real_trace_that_is_read_by_itself_is_explained_nearly_as_in_the_whole():
    """What is learnt from all steps is missing: at most 0.5% of a step has another bound."""
    steps = closeness(min(located("torchrec/resnet18").iterdir()))

    assert [one.step for one in steps] == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]
    assert all(one.moved_share < 0.005 for one in steps)


@pytest.mark.parametrize("window", [5, (1, 2, 3), ("a", "b"), (0, 2**70), (float("nan"), 1)])
def test_what_is_no_window_is_refused_before_anything_is_read(window):
    with pytest.raises(QueryError):
        hg.load(b"[]", window=window)
