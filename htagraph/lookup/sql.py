"""SQL over tables, through DuckDB: one statement that reads, in bounded time and memory.

A query may come from an agent that read names out of a trace. It reaches the views and nothing
else: no files, no network, no extensions, no settings.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import MissingEventsError, QueryError, did_you_mean
from htagraph.model.answers import COLLECTIVES, KERNEL_DURATIONS, LAUNCH_STATS
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.frames import EDGES, EVENTS, JOB_SEGMENTS, SEGMENTS, STEPS
from htagraph.model.job_answers import MATCHED_COLLECTIVES
from htagraph.model.kinds import EventKind
from htagraph.model.schema import Column, categorical, identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Views = Mapping[str, Mapping[str, Column]]

_SCHEMAS = {
    "events": EVENTS,
    "edges": EDGES,
    "segments": SEGMENTS,
    "steps": STEPS,
    "kernels": KERNEL_DURATIONS,
    "launches": LAUNCH_STATS,
    "collectives": COLLECTIVES,
}
VIEWS: Views = {name: one.columns for name, one in _SCHEMAS.items()}
"""Columns of the views of a graph."""
_RANK = {"rank": identifier("rank; times are common", unit="rank")}
JOB_VIEWS: Views = {
    **{name: {**_RANK, **columns} for name, columns in VIEWS.items()},
    "segments": JOB_SEGMENTS.columns,
    "collectives": MATCHED_COLLECTIVES.columns,
}
"""Columns of the views of a job."""

_LONGEST = 20_000
"""Characters of a query, chosen: far beyond what is written by hand."""
_MOST_S = 60
"""Seconds that a query may take, chosen: a join of all events and edges takes one."""
_MOST_ROWS = 5_000_000
"""Rows of an answer: chosen, more are better aggregated."""
_MEMORY, _BEYOND = 1 << 30, 2 << 30
"""Bytes of tables that DuckDB may hold, and of all that it allocates: texts are not counted among
the tables. Limits of memory."""
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "secret_directory": "none",  # by default below the user's home, which settings would tell
    "temp_directory": "",  # by default a folder in the working directory
    "memory_limit": f"{_MEMORY >> 20}MiB",
    "threads": "4",
}
_EXPLAIN = re.compile(r"\s*explain\s+(?:analyze\s+)?", re.IGNORECASE)
_READS = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:\(|select|with|from|values|describe|show|summarize)",
    re.IGNORECASE | re.DOTALL,
)
"""How a query begins. Some versions of DuckDB call a PRAGMA a SELECT."""


def event_table(dag: Dag, rows: I64) -> pd.DataFrame:
    """The events of `frames.EVENTS`, texts as categories: no text is made for each event."""
    events = dag.events
    at = slice(None) if len(rows) == len(events) else rows  # of the whole trace, without copies
    ids = {
        name: _categories([str(one) for one in getattr(events.lanes, name)], events.lane[at])
        for name in ("pid", "tid")
    }
    return pd.DataFrame(
        {
            "event": rows,
            "ts_ns": events.ts_ns[at],
            "dur_ns": events.dur_ns[at],
            "kind": categorical(events.kind[at], EventKind.labels()),
            "name": _categories(events.symbols.texts, events.name[at]),
            "category": _categories(events.symbols.texts, events.category[at]),
            **ids,
            "device": events.device[at].astype(np.int64),
            "stream": events.stream[at],
            "correlation": events.correlation[at],
            "external_id": events.external_id[at],
        },
        copy=False,
    )


def _categories(texts: Sequence[str], codes: npt.NDArray[np.integer]) -> pd.Categorical[str]:
    """Texts by their codes; surrogates, which are no Unicode, become question marks."""
    held = [text.encode("utf-8", "replace").decode() for text in texts]
    place, distinct = pd.factorize(np.array([*held, ""], dtype=object)[:-1])
    return pd.Categorical.from_codes(place.astype(np.int32)[codes], categories=pd.Index(distinct))


def answer_sql(query: str, views: Views, table: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    """Answer to one SELECT, WITH or EXPLAIN.

    `views`: the columns of each table. `table`: makes the table of a name; only called for those
    that the query names.
    """
    try:
        import duckdb  # noqa: PLC0415  deferred: an extra
    except ImportError as exc:
        raise MissingEventsError(
            "SQL needs duckdb.", missing="duckdb", hint="pip install 'htagraph[sql]'."
        ) from exc
    if len(query) > _LONGEST:
        raise QueryError(f"a query of {len(query):,} characters; {_LONGEST:,} are the most.")
    query = query.encode("utf-8", "replace").decode()
    connection = duckdb.connect(":memory:", config=_CONFIG)
    over = Event()
    try:
        connection.execute("SET python_enable_replacements = false")
        is_plan = _checked(connection, query)
        for name in _named(views, query):
            _add_view(connection, name, table(name))
        connection.execute("SET lock_configuration = true")
        with _bounded(connection, over):
            rows = connection.execute(query).df() if is_plan else _rows(connection, query)
    except (duckdb.Error, MemoryError, RuntimeError) as error:
        raise _refusal(str(error), views, query, over) from None
    finally:
        connection.close()
    if len(rows) > _MOST_ROWS:
        raise QueryError(
            f"the answer has more than {_MOST_ROWS:,} rows.", hint="aggregate, or add a LIMIT."
        )
    return rows


def _named(views: Views, query: str) -> list[str]:
    """The views that a query names."""
    named = {word.lower() for word in re.findall(r"\w+", query)}
    return [name for name in views if name in named]


def _checked(connection: DuckDBPyConnection, query: str) -> bool:
    """Check that a query is one statement that reads; whether it asks for a plan only."""
    from duckdb import StatementType  # noqa: PLC0415  as above

    found = _EXPLAIN.match(query)
    text = query[found.end() :] if found else query
    kinds = [one.type for one in connection.extract_statements(text)]
    if kinds != [StatementType.SELECT] or not _READS.match(text):
        said = ", ".join(kind.name for kind in kinds) or "nothing"
        raise QueryError(
            f"a query is one SELECT, WITH or EXPLAIN, not {said}.",
            hint="the views can only be read, and nothing else can be reached.",
        )
    return found is not None


def _add_view(connection: DuckDBPyConnection, name: str, frame: pd.DataFrame) -> None:
    """Add a table as a view: numbers where they are, texts by their codes."""
    held: dict[str, Any] = {}
    columns = []
    for column, values in frame.items():
        is_coded = str(values.dtype) == "category"
        is_text = is_coded or values.dtype.kind not in "biuf"
        held[str(column)] = values
        if is_text and not is_coded:
            codes, texts = pd.factorize(values)
            held[str(column)] = _categories([str(one) for one in texts], codes)
        # As a category, DuckDB would order a text by its code.
        columns.append(f'"{column}"::VARCHAR AS "{column}"' if is_text else f'"{column}"')
    connection.register(f"_{name}", pd.DataFrame(held, copy=False))
    listed = ", ".join(columns)
    connection.execute(f"CREATE VIEW {name} AS SELECT {listed} FROM _{name}")  # noqa: S608  ours


def _rows(connection: DuckDBPyConnection, query: str) -> pd.DataFrame:
    """The rows of a query. Sums of whole numbers have 128 bits, which pandas would round."""
    found = connection.sql(query)
    columns = [
        f'#{place}::BIGINT AS "{name.replace(chr(34), 2 * chr(34))}"'
        if str(kind) == "HUGEINT"
        else f"#{place}"
        for place, (name, kind) in enumerate(zip(found.columns, found.types, strict=True), 1)
    ]
    rows: pd.DataFrame = found.project(", ".join(columns)).limit(_MOST_ROWS + 1).df()
    return rows


@contextmanager
def _bounded(connection: DuckDBPyConnection, over: Event) -> Iterator[None]:
    """End a query that takes too long, and refuse memory that DuckDB does not count."""

    def end() -> None:
        over.set()
        connection.interrupt()

    timer = Timer(_MOST_S, end)
    timer.daemon = True
    timer.start()
    try:
        with _limited_memory():
            yield
    finally:
        timer.cancel()


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Limit what this process may allocate meanwhile, where the system can; a text may be long."""
    if sys.platform != "linux":
        yield
        return
    import resource  # noqa: PLC0415  not on Windows

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = pages * resource.getpagesize() + _BEYOND
    bounds = [one for one in (wanted, before, most) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(bounds), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def _refusal(said: str, views: Views, query: str, over: Event) -> QueryError:
    """DuckDB's error in a sentence, with the place in the query, and what there is."""
    if over.is_set():
        hint = "look at fewer rows (WHERE, a window), or join on equal columns."
        return QueryError(f"the query took longer than {_MOST_S} s.", hint=hint)
    if "Out of Memory" in said or "bad alloc" in said or "bad_alloc" in said or not said:
        hint = "look at fewer rows (WHERE, a window), or aggregate first."
        return QueryError(f"the query needs more than {_MEMORY >> 30} GB of memory.", hint=hint)
    sentence, _, rest = said.partition("\n")
    lines = rest.split("\n")
    at = next((row for row, line in enumerate(lines) if line.startswith("LINE ")), len(lines))
    shown = lines[at : at + 2]
    is_own = shown and shown[0].partition(": ")[2].strip("… .") in query
    excerpt = "\n".join(shown) if is_own else ""
    sentence = sentence.partition(": ")[2].rstrip("!.") or sentence
    return QueryError(f"{sentence}.", hint=_hint(sentence, views, query), excerpt=excerpt)


def _hint(sentence: str, views: Views, query: str) -> str:
    """What there is instead of a name that is none: views, or columns of the views of the query."""
    if "file system" in sentence or "configuration" in sentence:
        return "a query reaches the views only: no files, network, extensions or settings."
    used = _named(views, query)
    found = re.search(r'(?:name |column |function |at or near )"?([\w.]+)', sentence)
    word = found[1] if found else ""
    if not used or "Table" in sentence:
        return f"{did_you_mean(word, views)}views are {', '.join(views)}."
    columns = dict.fromkeys(column for name in used for column in views[name])
    listed = "; ".join(f"{name} has {', '.join(views[name])}" for name in used)
    return f"{did_you_mean(word, columns)}{listed}."
