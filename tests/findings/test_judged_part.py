"""A withheld verdict names what to run next: a report on the part that can be judged."""

from __future__ import annotations

import re

import pytest

import htagraph as hg
from htagraph.cli.inputs import windowed
from htagraph.findings.window_bounds import find_bounds
from htagraph.synth import timeline
from tests.real_traces import located

LATE = """
    cpu 1    |{first}[launch >a][launch >b]{rest}
    stream 7 |{gap}     [k1 <a]
    stream 9 |{gap}                                             [k2 <b]
"""


def graph_of(drawing: str) -> hg.TraceGraph:
    return hg.Trace.from_events(timeline(drawing)).compile()


def test_the_command_reports_on_the_part_before_an_unexplained_wait() -> None:
    """k2 starts late and nothing says why; the half before its wait is the host's."""
    graph = graph_of(LATE.format(first="[aten::mm" + " " * 50 + "]", gap=" " * 60, rest=""))

    withheld = find_bounds(graph.critical_path()).withheld

    found = re.search(r"(\d+)% of it can be judged: htagraph report FILE -w (\S+)$", withheld)
    assert found is not None
    assert 50 <= int(found[1]) < 80
    part = find_bounds(windowed(graph, found[2]).critical_path())
    assert (part.withheld, part.findings[0].cause) == ("", "CPU work")


def test_where_no_part_can_be_judged_the_checks_come_next() -> None:
    """The wait is nearly all there is. Inferred, it would be that for work before the capture."""
    drawing = LATE.format(first="", gap="", rest="").replace(" [k2", " " * 300 + "[k2")
    graph = hg.Trace.from_events(timeline(drawing)).compile(infer=False)

    withheld = find_bounds(graph.critical_path()).withheld

    assert withheld.endswith("No part of it can be judged; all checks: htagraph info FILE")


@pytest.mark.parametrize(("op_us", "is_judged"), [(12, False), (35, True)])
def test_a_part_is_judged_from_a_tenth_on(op_us: int, is_judged: bool) -> None:
    """Of 400 us, most of which are an unknown wait."""
    first = "[aten::mm" + " " * (op_us - 10) + "]"
    drawing = LATE.format(first=first, gap=" " * op_us, rest="").replace(
        " [k2", " " * (360 - op_us) + "[k2"
    )
    graph = hg.Trace.from_events(timeline(drawing)).compile(infer=False)
    withheld = find_bounds(graph.critical_path()).withheld

    assert ("of it can be judged: htagraph" in withheld) is is_judged


@pytest.mark.public("tracelens/vllm_piecewise_graph.json.gz")
def test_the_command_can_be_pasted() -> None:
    """It names the file, and the part that it names is judged. Inferred, all of it would be."""
    file = located("tracelens/vllm_piecewise_graph.json.gz")
    trace = hg.load(file)
    graph = trace.compile(infer=False)

    withheld = hg.Summary(trace, graph).verdict.withheld

    found = re.search(rf"htagraph report {re.escape(str(file))} -w (\S+)$", withheld)
    assert found is not None
    assert find_bounds(windowed(graph, found[1]).critical_path()).withheld == ""
