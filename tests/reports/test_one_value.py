"""One word has one meaning, and one figure one value, wherever a report shows it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import get_args

import pytest
from htagraph.reports.page.key_figures import key_figures

import htagraph as hg
from htagraph.reports.json_document import json_document
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.summary import Summary
from tests.synth.simulator import simulate
from tests.synth.training import Fault, training_rank

_FINDING = re.compile(r"^\d\. \*\*(.+): ([\d.]+)% of the path \((.+)\)\.\*\*", re.MULTILINE)


def figures(summary: Summary) -> dict[str, set[str]]:
    """Every value of every figure that is on the page, in Markdown or in JSON, by its name."""
    graph, dur_ns = summary.graph, summary.path.dur_ns
    found: dict[str, set[str]] = defaultdict(set)
    for one in key_figures(summary, graph.temporal_breakdown()):
        found[one.name].add(one.text)
    (device,) = graph.temporal_breakdown().to_dict("records")
    (overlapped,) = graph.overlap().to_dict("records")
    found["device idle"].add(f"{device['idle_ns'] / dur_ns:.1%}")
    found["device busy"].add(f"{(dur_ns - device['idle_ns']) / dur_ns:.1%}")
    found["exposed communication"] |= {
        f"{ns / dur_ns:.1%}" for ns in (device["communication_ns"], overlapped["exposed_ns"])
    }
    document = json_document(summary)
    found["unknown_waits"].add(f"{document['critical_path']['unknown_share']:.1%}")
    found["unknown_waits"].add(
        f"{document['findings']['apart'].get('unknown_waits', 0) / dur_ns:.1%}"
    )
    for finding in document["findings"]["items"]:
        found[finding["title"]].add(f"{finding['share']:.1%}")
    for title, percent, _ in _FINDING.findall(markdown_summary(summary)):
        found[title].add(f"{percent}%")
    return found


@pytest.mark.parametrize("fault", get_args(Fault))
def test_a_figure_has_one_value_on_all_screens(fault: Fault) -> None:
    trace = hg.Trace.from_events(simulate(training_rank(fault=fault)).events)
    found = figures(Summary.of(trace, trace.compile()))

    assert {name: values for name, values in found.items() if len(values) > 1} == {}
    assert len(found) > 8


def test_communication_on_the_path_is_not_called_exposed() -> None:
    """Exposed is what no compute hides on the device; the path may run through hidden time."""
    trace = hg.Trace.from_events(simulate(training_rank(fault="exposed_allreduce")).events)
    summary = Summary.of(trace, trace.compile())

    assert "xposed" not in repr(summary.verdict)
