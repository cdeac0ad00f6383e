"""The reader against the slow and obvious one, on every real trace, event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from htagraph.model.events import EVENT_DTYPES
from htagraph.model.recording import Recording
from htagraph.readers.kineto.reader import read_kineto
from tests.readers import oracle
from tests.real_traces import BROKEN_METADATA, TRACES, case, located

_PLAIN = ("captures/jax/steps.trace.json.gz",)
"""Traces without categories: what their events are follows from the file as a whole."""

FILES = [case(name) for name in TRACES if name not in (*BROKEN_METADATA, *_PLAIN)]

pytestmark = pytest.mark.slow


def rows(trace: Recording) -> list[dict[str, Any]]:
    """The event table as one dict per event, without what an event does not have."""
    events = trace.events
    values = {name: getattr(events, name).tolist() for name in EVENT_DTYPES}
    texts, lanes = events.symbols.texts, events.lanes
    out = [dict(zip(values, some, strict=True)) for some in zip(*values.values(), strict=True)]
    for event in out:
        event["name"], event["category"] = texts[event["name"]], texts[event["category"]]
        event["lane"] = lanes.pid[event["lane"]], lanes.tid[event["lane"]]
    for name, column in events.columns.items():
        found = column.value.tolist()
        if name in oracle.TEXTS:
            found = [texts[value] for value in found]
        if name in oracle.LISTS:
            found = [oracle.listed(events.lists.texts[value]) for value in found]
        for event, value in zip(column.event.tolist(), found, strict=True):
            out[event][name] = value
    return out


@pytest.mark.parametrize("name", FILES)
def test_all_columns_equal_those_of_json(name: str) -> None:
    """Numbers are exact: times are compared with decimals, ids with unbounded integers."""
    path = located(name)
    raw, header = oracle.document(path)
    base_time_ns = int(header.get("baseTimeNanoseconds", 0))
    expected = [oracle.row(event, base_time_ns) for event in raw if event["ph"] in "XiIC"]

    trace = read_kineto(path, stacks=True)

    assert rows(trace) == expected
    assert trace.repairs == ()


@pytest.mark.parametrize("name", FILES)
def test_flows_and_header_equal_those_of_json(name: str) -> None:
    """What is not in the event table is in the flow table, counted as skipped, or metadata."""
    path = located(name)
    raw, header = oracle.document(path)
    base_time_ns = int(header.get("baseTimeNanoseconds", 0))
    points = [event for event in raw if event["ph"] in "stf"]
    expected = [
        (
            oracle.nanoseconds(e["ts"]) + base_time_ns,
            int(e["id"]),
            e["ph"],
            e["cat"],
            oracle.place(e["pid"]),
            oracle.place(e["tid"]),
        )
        for e in points
        if e["cat"] not in oracle.LAUNCH_FLOWS
    ]

    trace = read_kineto(path, stacks=True)

    flows, lanes = trace.events.flows, trace.events.lanes
    found = [
        (
            ts_ns,
            flow,
            "stf"[phase],
            trace.events.symbols.texts[category],
            lanes.pid[lane],
            lanes.tid[lane],
        )
        for ts_ns, flow, phase, category, lane in zip(
            flows.ts_ns.tolist(),
            flows.id.tolist(),
            flows.phase.tolist(),
            flows.category,
            flows.lane,
            strict=True,
        )
    ]
    assert found == expected
    assert sum(trace.skipped.values()) == len(points) - len(expected)
    assert {
        key: str(value)
        for key, value in trace.origin.metadata.items()
        if not isinstance(value, (float, list, dict))
    } == {
        key: str(value)
        for key, value in header.items()
        if not isinstance(value, (oracle.Decimal, list, dict))
    }
    assert trace.origin.metadata.keys() == header.keys()


@pytest.mark.parametrize("name", BROKEN_METADATA)
def test_a_header_that_json_refuses_costs_nothing(name: str) -> None:
    """PyTorch writes strings of `add_metadata` as they are; all keys and events are read."""
    path = located(name)
    with pytest.raises(json.JSONDecodeError):
        oracle.document(path)
    repaired = json.loads(oracle.content(path).replace(b'/"run one/"', b'/\\"run one/\\"'))
    events = [event for event in repaired.pop("traceEvents") if event["ph"] in "XiIC"]

    trace = read_kineto(path)

    assert [(repair.kind, repair.n) for repair in trace.repairs] == [("raw quote", 1)]
    assert trace.origin.metadata == repaired
    assert repaired["args"] == 'Namespace(name=/"run one/", lr=0.1)'
    assert (trace.rank, trace.world_size) == (repaired["distributedInfo"]["rank"], 2)
    assert trace.origin.base_time_ns == 1_790_857_026_000_000_000
    assert len(trace.events) == len(events)
