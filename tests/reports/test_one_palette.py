"""Every output shows a bound in the color and hatch of one table."""

from __future__ import annotations

import re

import pytest

import htagraph as hg
from htagraph.model.colors import COLORS, Color
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.reports import plots
from htagraph.reports.page import write_page
from htagraph.reports.summary import Summary

pytest.importorskip("plotly")

DRAWING = """
    cpu 1    |[aten::mm [launch >a]] [launch >b][sync @*]
    stream 7 |            [gemm <a ]      [ncclK <b ]
"""
DRAWN = (Bound.HOST, Bound.COMMUNICATION, Bound.LAUNCH, Bound.SYNC)


@pytest.fixture(scope="module")
def summary() -> Summary:
    trace = hg.Trace.from_events(hg.synth.timeline(DRAWING))
    return Summary(trace, trace.compile())


@pytest.fixture(scope="module")
def page(summary: Summary, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(tmp_path_factory.mktemp("page") / "report.html", summary).read_text()


@pytest.fixture(params=DRAWN, ids=lambda bound: bound.label)
def bound(request: pytest.FixtureRequest, summary: Summary) -> Bound:
    """A bound on the path of the drawing."""
    assert request.param.label in summary.by_bound.index
    found: Bound = request.param
    return found


@pytest.fixture
def color(bound: Bound) -> Color:
    return COLORS[bound]


def test_of_a_figure(summary: Summary, bound: Bound, color: Color) -> None:
    """Rows of the timeline; their names tell the bounds, so no hatch has to."""
    drawn, name = plots.critical_path_timeline(summary.path).data, bound_in_words(bound.label)
    assert {one.marker.color for one in drawn if one.name == name} == {color.fill}


def test_of_the_page(page: str, bound: Bound, color: Color) -> None:
    """Marks of tables and of bars outside figures."""
    assert f'[data-key="{bound.label}"] {{ --key: {color.css}; --fill: {color.fill}; }}' in page
    assert f'<td data-key="{bound.label}">' in page


def test_of_a_notebook(summary: Summary, color: Color) -> None:
    assert f"background:{color.css}" in summary.path._repr_html_()


def test_of_graphviz(summary: Summary, bound: Bound, color: Color) -> None:
    (box, *_) = [at for at, box in enumerate(summary.path.outline.boxes) if box.bounds[0] is bound]
    said = summary.path.to_dot().partition(f"n{box} [")[2].partition("];")[0]
    assert f'fillcolor="{color.fill}"' in said
    assert f'fontcolor="{color.ink}"' in said


def test_figures_of_the_page_are_called_by_their_sentence(page: str, summary: Summary) -> None:
    """A screen reader says what the title says; the table of the figure is next to it."""
    title = plots.critical_path_timeline(summary.path).layout.title.text
    figure = page.index(f'data-figure="critical-path-timeline" role="figure" aria-label="{title}"')
    assert page.index("<table", figure) < page.index("</article>", figure)
    tags = re.findall(r"<div [^>]*data-figure=[^>]*>", page)
    assert not [tag for tag in tags if 'role="figure" aria-label="' not in tag]
