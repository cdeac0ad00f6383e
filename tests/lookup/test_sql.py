"""SQL over the tables of a graph: what it answers, and what it refuses."""

from __future__ import annotations

import re
import sys
import time
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import htagraph as hg
from htagraph.errors import MissingEventsError, QueryError
from htagraph.lookup import sql
from htagraph.lookup.sql import JOB_VIEWS, VIEWS

duckdb = pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def graph() -> hg.TraceGraph:
    return hg.load(hg.demo_trace("none")).compile()


@pytest.fixture(scope="module")
def job() -> hg.Job:
    return hg.load_job(hg.demo_trace("job"))


def as_answered(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose texts are as SQL returns them."""
    texts = [name for name in frame if frame[name].dtype.kind not in "biuf"]
    return pd.DataFrame({**frame, **{name: frame[name].astype(object).map(str) for name in texts}})


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_the_tables(graph: hg.TraceGraph, view: str) -> None:
    """The same rows in the same order, with the columns of the schema."""
    tables = {
        "events": graph.events,
        "edges": graph.edges,
        "segments": graph.critical_path().segments,
        "steps": graph.steps,
        "kernels": graph.kernel_durations(),
        "launches": graph.launch_stats(),
        "collectives": graph.collectives(),
    }
    found = graph.sql(f"FROM {view}")

    assert list(found) == list(VIEWS[view])
    assert len(found)
    expected = as_answered(pd.DataFrame(tables[view]))
    if view == "steps":
        inside = expected["start_ns"].between(graph.interval.start_ns, graph.interval.end_ns - 1)
        expected = expected[inside].reset_index(drop=True)
    assert_frame_equal(as_answered(found.plain), expected, check_dtype=False)


def test_numbers_are_exact(graph: hg.TraceGraph) -> None:
    """Sums are integers, to the nanosecond; what has no 64 bits is an error."""
    (row,) = graph.sql("SELECT sum(dur_ns * 100003) AS sum_ns FROM events").itertuples()

    assert row.sum_ns == int(graph.events["dur_ns"].sum()) * 100_003
    with pytest.raises(QueryError, match="out of range") as caught:
        graph.sql("SELECT sum(ts_ns) FROM events")
    assert not caught.value.excerpt


def test_texts_are_ordered_as_texts(graph: hg.TraceGraph) -> None:
    """Not by the codes that they have in the graph."""
    names = graph.sql("SELECT DISTINCT name FROM events ORDER BY name")["name"].tolist()
    (first,) = graph.sql("SELECT min(kind) AS kind FROM events")["kind"]

    assert names == sorted(names)
    assert first == min(graph.events["kind"].astype(str))


def test_a_window_has_its_own_tables(graph: hg.TraceGraph) -> None:
    """Of a step, its events and its path."""
    step = graph.window("first")
    (row,) = step.sql(
        "SELECT count(*) AS n, (SELECT sum(dur_ns) FROM segments) AS dur_ns FROM events"
    ).itertuples()

    assert (row.n, row.dur_ns) == (len(step.events), step.dur_ns)


def test_only_tables_that_are_named_are_made(graph: hg.TraceGraph, monkeypatch) -> None:
    """The path of a large trace takes longer than its events."""
    made = []
    table = hg.TraceGraph.sql_view
    monkeypatch.setattr(
        hg.TraceGraph, "sql_view", lambda self, view: made.append(view) or table(self, view)
    )
    graph.sql("WITH x AS (SELECT * FROM Events) SELECT count(*) FROM x, steps")

    assert made == ["events", "steps"]


def test_recursion_follows_binding_edges(graph: hg.TraceGraph) -> None:
    """Back from the last kernel, each event waited for the next."""
    chain = graph.sql("""
        WITH RECURSIVE chain AS (
            SELECT max(event) AS event, 0 AS hop FROM kernels
            UNION ALL
            SELECT tail_event, hop + 1 FROM chain JOIN edges ON head_event = event
            WHERE is_binding AND NOT head_is_end AND hop < 5
        ) SELECT event FROM chain ORDER BY hop
    """)["event"].tolist()
    edges = graph.edges
    pairs = edges[edges["is_binding"]][["tail_event", "head_event"]].to_numpy().tolist()

    assert len(chain) > 3
    assert all([one, after] in pairs for after, one in pairwise(chain))


def test_names_that_are_no_unicode_are_text() -> None:
    """Bytes of a file that cannot be read as text, quotes and formulas are data."""
    events = hg.synth.timeline("cpu 1 |[a][b]", names={"a": "x\udce9", "b": "'; DROP TABLE events"})
    graph = hg.Trace.from_events(events).compile()

    assert graph.sql("SELECT name FROM events")["name"].tolist() == ["x?", "'; DROP TABLE events"]


def test_explain_is_a_plan(graph: hg.TraceGraph) -> None:
    """For those who wonder what takes long."""
    assert "explain_value" in graph.sql("EXPLAIN ANALYZE SELECT count(*) FROM events")


@pytest.mark.parametrize("view", JOB_VIEWS)
def test_views_of_a_job_have_ranks(job: hg.Job, view: str) -> None:
    """And common times."""
    found = job.sql(f"FROM {view}")

    assert list(found) == list(JOB_VIEWS[view])
    assert len(found)


def test_times_of_a_job_are_common(job: hg.Job) -> None:
    """The kernels of matched collectives are where the job says that they are."""
    found = job.sql("""
        SELECT count(*) AS n FROM collectives JOIN events USING (rank, event)
        WHERE events.ts_ns = collectives.start_ns
    """)

    assert found["n"].tolist() == [len(job.collectives())]


@pytest.mark.parametrize(
    ("query", "said", "hint"),
    [
        ("SELECT nme FROM events", '"nme" not found', "did you mean 'name'? events has event, ts"),
        ("SELECT * FROM evens", "name evens does not exist", "did you mean 'events'? views are"),
        ("SELECT name FROM events, kernels", "Ambiguous", "events has event"),
        ("SELECT 1/'x'", "Could not convert string", "views are events"),
        ("", "not nothing", "can only be read"),
        ("SELECT 1; SELECT 2", "not SELECT, SELECT", "can only be read"),
        ("-- nothing", "not nothing", "can only be read"),
        ("SELECT 1" + " " * 30_000, "20,000 are the most", ""),
    ],
)
def test_what_is_wrong_and_what_there_is(graph: hg.TraceGraph, query, said, hint) -> None:
    """A sentence, and the names that one may have meant."""
    with pytest.raises(QueryError) as caught:
        graph.sql(query)

    assert said in caught.value.message
    assert hint in (caught.value.hint or "")
    assert "\n" not in caught.value.message


def test_a_syntax_error_has_a_mark(graph: hg.TraceGraph) -> None:
    """Below the word."""
    with pytest.raises(QueryError, match="syntax error") as caught:
        graph.sql("SELECT name FRM events WHERE")
    if duckdb.__version__.startswith("1.1."):
        return  # it only names the word
    text, mark = caught.value.excerpt.split("\n")

    assert text[mark.index("^") :].startswith(("FRM", "events"))


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH 'x.db'",
        "COPY events TO 'events.csv'",
        "EXPLAIN ANALYZE COPY events TO 'events.csv'",
        "EXPLAIN /* */ EXPLAIN ANALYZE COPY events TO 'events.csv'",
        "PRAGMA version",
        "/* SELECT */ PRAGMA version",
        "CALL pragma_version()",
        "INSTALL json",
        "LOAD json",
        "SET threads = 1",
        "SET enable_external_access = true",
        "RESET memory_limit",
        "CREATE TABLE x AS SELECT 1",
        "CREATE MACRO f() AS 1",
        "INSERT INTO events VALUES (1)",
        "UPDATE events SET name = 'x'",
        "DELETE FROM events",
        "DROP VIEW events",
        "EXPORT DATABASE 'x'",
        "CHECKPOINT",
        "BEGIN",
        "USE x",
        "PREPARE x AS SELECT 1",
        "VACUUM",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM read_json('/etc/passwd')",
        "SELECT * FROM read_parquet('https://example.com/x')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM query('COPY events TO ''x''')",
        "SELECT getenv('HOME')",
        "SELECT * FROM frame",
        "SELECT " + "1 + " * 4_500 + "1",
        "SELECT \0",
    ],
)
def test_nothing_but_the_views_can_be_reached(
    graph: hg.TraceGraph, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No files, network, extensions, settings, variables of Python; nothing is written."""
    frame = pd.DataFrame({"secret": [1]})
    monkeypatch.chdir(tmp_path)
    start = time.perf_counter()
    with pytest.raises(QueryError) as caught:
        graph.sql(query)

    assert len(frame) == 1
    assert time.perf_counter() - start < 5
    assert not [*tmp_path.iterdir()]
    assert "root:" not in str(caught.value)


def test_settings_tell_nothing_of_the_machine(graph: hg.TraceGraph) -> None:
    """Neither where the user's files are, nor that there are secrets."""
    settings = graph.sql("SELECT value FROM duckdb_settings()")["value"].dropna()
    home = str(Path.home())

    if duckdb.__version__.startswith("1.1."):
        return  # it shows its default for secrets, whatever is set
    assert not [one for one in settings if home in str(one) and len(home) > 1]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r",
        "SELECT count(*) FROM range(1000000000000)",
        "SELECT count(*) FROM events a, events b, events c, events d, events e",
    ],
)
def test_a_query_without_end_is_ended(graph: hg.TraceGraph, query: str, monkeypatch) -> None:
    """Endless recursion, a billion rows, cross joins."""
    monkeypatch.setattr(sql, "_MOST_S", 1)
    start = time.perf_counter()
    with pytest.raises(QueryError, match="took longer than 1 s"):
        graph.sql(query)

    assert time.perf_counter() - start < 10
    assert len(graph.sql("SELECT 1")) == 1


@pytest.mark.some(1)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT repeat('x', 4000000000)",
        "SELECT range(1000000000)",
        "WITH RECURSIVE r AS (SELECT 'x' AS s UNION ALL SELECT s || s FROM r) SELECT max(s) FROM r",
        "SELECT list(repeat('x', 1000000)) FROM range(100000)",
        "SELECT count(DISTINCT hash(range)) FROM range(10000000000)",
    ],
)
def test_memory_is_limited(graph: hg.TraceGraph, query: str, monkeypatch) -> None:
    """Long texts and lists, too, which DuckDB does not count. The time is a bound as well."""
    import resource

    monkeypatch.setattr(sql, "_MOST_S", 5)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(QueryError, match=r"needs more than 1 GB of memory|took longer than 5 s"):
        graph.sql(query)

    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(graph.sql("SELECT 1")) == 1


def test_rows_are_limited(graph: hg.TraceGraph, monkeypatch) -> None:
    """What nobody reads is not copied."""
    assert len(graph.sql("SELECT * FROM range(1000)")) == 1_000
    monkeypatch.setattr(sql, "_MOST_ROWS", 999)
    with pytest.raises(QueryError, match=r"more than 999 rows. Hint: aggregate"):
        graph.sql("SELECT * FROM range(1000)")
    with pytest.raises(QueryError, match="more than 999 rows"):
        graph.sql("SELECT * FROM range(1000000000000)")


def test_without_duckdb_the_error_says_what_to_install(graph: hg.TraceGraph, monkeypatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingEventsError, match=re.escape("pip install 'htagraph[sql]'")):
        graph.sql("SELECT 1")
