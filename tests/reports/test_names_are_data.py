"""Names are data: whatever a trace calls its events, no output takes it for more than a text."""

from __future__ import annotations

import csv
import functools
import io
import json
import tempfile
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pydot
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace

import htagraph as hg
from htagraph.cli.console import Terminal
from htagraph.cli.tables import Format, print_frame, print_verdict
from htagraph.model.labels import printable
from htagraph.reports.markdown import markdown_summary
from tests.examples import one_in

NASTY = [
    "\x1b[2J\x1b[31mred\x07",
    "\x9b31m\x85\x90",
    "a\r\nb\tc\x00d",
    "=cmd|' /C calc'!A0",
    "+1-1",
    "@SUM(A1)",
    "</script><script>document.title='no'</script>",
    "<img src=x onerror=alert(1)>",
    "&lt;b&gt; &#27; &amp;",
    "| a | `b` **c** [d](javascript:alert(1)) <b> $x$ __e__ ~~f~~ ![g](h)",
    'n0 [label="x"]; } digraph { "\\',
    "back\\slash\\N\\",
    "\u202ereversed\u2066 \u061c\u200f\u2028",
    "\ud800 lone",
    "[red]markup[/] [/]",
    "%s {0} {name} ${HOME}",
    "",
]
_OF_WRITING = set("\u061c\u200e\u200f\u2028\u202e\u2066")
"""Characters that turn the direction of writing, or end a line."""
NAMES = st.one_of(st.sampled_from(NASTY), st.text(max_size=40))


@functools.cache
def summary_of(name: str) -> hg.Summary:
    """Report on a trace in which an operator, a kernel and a step have a name."""
    host = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**host, "cat": "user_annotation", "name": name, "ts": 0, "dur": 90},
        {**host, "cat": "cpu_op", "name": name, "ts": 1, "dur": 50},
        {
            **host,
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": 5,
            "dur": 4,
            "args": {"correlation": 1},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "pid": 0,
            "tid": 7,
            "ts": 20,
            "dur": 60,
            "args": {"correlation": 1, "device": 0, "stream": 7},
        },
        {**host, "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "ts": 60, "dur": 25},
    ]
    trace = hg.load(json.dumps({"traceEvents": events}).encode())
    return hg.Summary(trace, trace.compile())


def on_terminal(summary: hg.Summary, form: Format) -> str:
    """What a terminal gets: the head of a report, and tables."""
    console = Terminal(
        width=100,
        file=io.StringIO(),
        force_terminal=True,
        color_system=None,
    )
    print_verdict(console, summary)
    for frame in (summary.path.segments, summary.by_op.reset_index()):
        print_frame(console, frame, form, columns="all")
    console.print(f"of {summary.by_name.index[0]}", markup=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class Texts(HTMLParser):
    """Elements and texts of a page outside of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def each_nasty_name(test):
    """Run a test with all nasty names, and with drawn ones."""
    for name in NASTY:
        test = example(name=name)(test)
    slow = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(one_in(5), suppress_health_check=slow)(given(name=NAMES)(test))


@pytest.mark.some(1)
@each_nasty_name
@pytest.mark.parametrize("form", [Format.TABLE, Format.CSV, Format.MD])
def test_no_control_character_reaches_the_terminal(form: Format, name: str) -> None:
    """Neither escapes nor returns nor what turns the direction of writing; and all encodes."""
    shown = on_terminal(summary_of(name), form)
    assert {char for char in shown if unicodedata.category(char) in ("Cc", "Cs")} <= {"\n"}
    assert not _OF_WRITING & set(shown)
    shown.encode()


@each_nasty_name
def test_a_name_in_csv_is_no_formula(name: str) -> None:
    """Every row has as many cells as the head; a text that would be one has an apostrophe."""
    console = Terminal(file=io.StringIO())
    print_frame(console, summary_of(name).path.segments, Format.CSV)
    assert isinstance(console.file, io.StringIO)
    head, *rows = csv.reader(io.StringIO(console.file.getvalue()))
    assert {len(row) for row in rows} == {len(head)}
    texts = [row[head.index(column)] for row in rows for column in ("name", "op")]
    assert not any(text.startswith(("=", "+", "-", "@")) for text in texts)
    assert {printable(name), f"'{printable(name)}"} & set(texts) or not name


@pytest.mark.slow
@each_nasty_name
def test_a_name_in_markdown_is_text(name: str) -> None:
    """A reader that also takes HTML finds the tables and headings of the report, nothing else."""
    read = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = read.parse(markdown_summary(summary_of(name)))
    inline = [token for block in tokens for token in (block.children or [])]
    kinds = {token.type for token in (*tokens, *inline)}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "code_inline", "s_open"}
    plain = read.parse(markdown_summary(summary_of("aten::mm")))
    rows = [sum(token.type == "tr_open" for token in some) for some in (tokens, plain)]
    assert rows[0] <= rows[1]  # an event without a name is no target of a change


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pyparsing, by pydot
@each_nasty_name
def test_a_name_in_dot_is_a_label(name: str) -> None:
    """Parsed back, the drawing has the boxes and arrows of any other name."""
    (drawn,) = pydot.graph_from_dot_data(summary_of(name).path.to_dot())
    (plain,) = pydot.graph_from_dot_data(summary_of("aten::mm").path.to_dot())
    assert len(drawn.get_edges()) == len(plain.get_edges())
    boxes, expected = (
        [node.get_name() for part in (one, *one.get_subgraphs()) for node in part.get_nodes()]
        for one in (drawn, plain)
    )
    assert boxes == expected


@each_nasty_name
def test_a_name_in_a_perfetto_trace_is_a_string(name: str) -> None:
    """The trace can be parsed; strings of protobuf are UTF-8."""
    with tempfile.TemporaryDirectory() as folder:
        file = summary_of(name).path.to_perfetto(Path(folder) / "critical.pftrace")
        assert len(PerfettoTrace.FromString(Path(file).read_bytes()).packet) > 5


def test_a_name_in_the_page_is_text() -> None:
    """The page has the elements and attributes that it has with any other name."""
    with tempfile.TemporaryDirectory() as folder:
        pages = [
            hg.write_page(Path(folder) / "report.html", summary_of(one)).read_text("utf-8")
            for one in (" ".join(NASTY), "aten::mm")
        ]
    nasty, plain = map(Texts, pages)
    assert nasty.tags <= plain.tags | {"p"}
    assert nasty.attributes <= plain.attributes
    assert not _OF_WRITING & (set(pages[0]) - set(pages[1]))
