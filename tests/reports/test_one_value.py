"""One word has one meaning, and one figure one value, wherever a report shows it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import get_args

import pytest

import htagraph as hg
from htagraph.findings.verdict import percent
from htagraph.model.units import human_duration
from htagraph.reports.json_document import json_document
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.page.headline import tiles
from htagraph.reports.summary import Summary
from tests.synth.simulator import simulate
from tests.synth.training import Fault, training_rank

_CARD = re.compile(r"^\d\. \*\*(.+?)\*\*: (?:together )?costs? ([\d.]+)%", re.MULTILINE)


def figures(summary: Summary) -> dict[str, set[str]]:
    """Every value of every figure that is on the page, in Markdown or in JSON, by its name."""
    graph, dur_ns = summary.graph, summary.path.dur_ns
    document = json_document(summary)
    found: dict[str, set[str]] = defaultdict(set)
    for one in tiles(summary.verdict, graph.temporal_breakdown()):
        found[one.name].add(one.text)
    (device,) = graph.temporal_breakdown().to_dict("records")
    (overlapped,) = graph.overlap().to_dict("records")
    found["GPU busy"].add(f"{(dur_ns - device['idle_ns']) / dur_ns:.0%}")
    for ns in (device["communication_ns"], overlapped["exposed_ns"]):
        found["exposed communication"].add(percent(ns, dur_ns))
    n_steps = document["verdict"]["n_steps"]
    if n_steps:
        step_ns = document["verdict"]["window_ns"] / n_steps
        found["step time"] |= {human_duration(step_ns), summary.verdict.lasts(dur_ns)}
    for item in document["verdict"]["items"]:
        if item["is_card"]:
            found[item["title"]].add(f"{item['cost_ns'] / dur_ns:.0%}")
    for title, share in _CARD.findall(markdown_summary(summary)):
        found[title].add(f"{share}%")
    for card in summary.verdict.cards:
        found[card.title].add(card.said.rpartition(" ")[2])
    return found


@pytest.mark.parametrize("fault", get_args(Fault))
def test_a_figure_has_one_value_on_all_screens(fault: Fault) -> None:
    trace = hg.Trace.from_events(simulate(training_rank(fault=fault)).events)
    found = figures(Summary.of(trace, trace.compile()))

    assert {name: values for name, values in found.items() if len(values) > 1} == {}
    assert len(found) > 3


def test_communication_on_the_path_is_not_called_exposed() -> None:
    """Exposed is what no compute hides on the device; the path may run through hidden time."""
    trace = hg.Trace.from_events(simulate(training_rank(fault="exposed_allreduce")).events)
    summary = Summary.of(trace, trace.compile())

    assert "xposed" not in repr(summary.verdict)
