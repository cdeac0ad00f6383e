"""Work of operators in real traces: expected values, and the limits of devices that it obeys."""

from __future__ import annotations

import csv
import json
from functools import cache

import numpy as np
import pytest

import htagraph as hg
from htagraph.arrays.ancestors import nearest
from htagraph.lookup.operator_roofs import call_of, operator_roofs, operator_work
from htagraph.lookup.sm_activity import geometry_devices
from htagraph.model.kinds import DEVICE_KINDS, among
from htagraph.operators.peaks import peaks_of
from htagraph.operators.work import registered, work_of
from tests.light_table import LAWS, light_row
from tests.real_traces import CAPTURES, TRACES, case, cases, located

_RELATIVE = 5e-3
"""Parameters of a norm, which the expected bytes leave out, are at most this share of them."""
_CUT_NS = 1_000
"""Old profilers cut durations to whole microseconds."""


def _expected() -> dict[str, list[dict[str, str]]]:
    rows: dict[str, list[dict[str, str]]] = {}
    with (CAPTURES.parent / "operator_work.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["trace"], []).append(row)
    return rows


_EXPECTED = _expected()


@cache
def _found(name: str):
    """Calls, kernels and their time in us by operator, inputs and work."""
    dag = hg.load(located(name)).compile(infer=False).dag
    work = np.flatnonzero(among(dag.events.kind, DEVICE_KINDS))
    joined = operator_work(dag, work)
    has = joined.call >= 0
    n_kernels = np.bincount(joined.call[has])
    dur_ns = np.bincount(joined.call[has], weights=dag.events.dur_ns[work[has]])
    found: dict[tuple[str, str, str], list[tuple]] = {}
    for at, event in enumerate(joined.event.tolist()):
        call = call_of(dag, event)
        assert call is not None
        recorded = list(zip(call.dims, call.types, strict=True))
        shapes = [dims for dims, kind in recorded if dims or kind == "TensorList"]
        types = "|".join(
            kind for one, (_, kind) in zip(call.arguments, recorded, strict=True) if one is not None
        )
        key = call.name, json.dumps(shapes), types
        found.setdefault(key, []).append((joined.works[joined.kind[at]], n_kernels[at], dur_ns[at]))
    return found


@pytest.mark.parametrize("name", cases(_EXPECTED))
def test_every_expected_operator(name):
    """Operations are equal, bytes equal or within the interval; calls, kernels and time, too."""
    found = _found(name)
    wrong = []
    for row in _EXPECTED[name]:
        calls = found.get((row["op"], row["shapes"], row["types"]), [])
        gflop, n_bytes = float(row["gflop"]), int(row["bytes"])
        like = [
            one
            for one in calls
            if abs(one[0].flops / 1e9 - gflop) < 1e-6 * max(gflop, 1)
            and one[0].bytes_low * (1 - _RELATIVE) <= n_bytes <= one[0].bytes_high * (1 + _RELATIVE)
        ]
        seen = len(like), sum(one[1] for one in like), sum(one[2] for one in like) / 1e3
        if seen != (int(row["calls"]), int(row["kernels"]), pytest.approx(float(row["kernel_us"]))):
            wrong.append((row, seen, calls[:1]))

    assert wrong == []


@pytest.mark.parametrize("name", cases(TRACES))
def test_no_operator_is_faster_than_its_device(name):
    """Operations by the dense peak; bytes beyond the cache by memory; copies by the host's link."""
    dag = hg.load(located(name)).compile(infer=False).dag
    work = np.flatnonzero(among(dag.events.kind, DEVICE_KINDS))
    roofs = operator_roofs(dag, work, dag.events.dur_ns[work])
    joined, n = roofs.work, len(roofs.work.event)
    device = np.full(n, -1)
    device[joined.call[joined.call >= 0]] = dag.events.device[work[joined.call >= 0]]
    wrong = []
    for number, properties in geometry_devices(dag).items():
        peaks = peaks_of(properties)
        for at in np.flatnonzero(device == number).tolist() if peaks else ():
            done, seconds = joined.works[joined.kind[at]], (roofs.device_ns[at] + _CUT_NS) / 1e9
            rates = [(roofs.compute_ns[at], 1e9)]
            if joined.host_bytes[at] >= 0:
                rates.append((joined.host_bytes[at], peaks.host_bytes_per_s))
            else:
                rates.append((done.bytes_low - peaks.cache_bytes, peaks.bytes_per_s))
            if any(amount > limit * seconds > 0 for amount, limit in rates):
                wrong.append((call_of(dag, int(joined.event[at])), rates, seconds))

    assert wrong == []
    assert (roofs.roof_ns <= roofs.device_ns).all()


@pytest.mark.parametrize(
    "name", cases(one for one in TRACES if "/jobs/" not in one and "/pipelines/" not in one)
)
def test_a_library_does_the_work_that_pytorch_asked_for(name):
    """The caller is the same on all devices, so that twins on two vendors have equal work."""
    dag = hg.load(located(name)).compile(infer=False).dag
    recorded = np.zeros(len(dag.events), dtype=bool)
    if (types := dag.events.columns.get("arg_types")) is not None:
        recorded[types.event] = True
    known = [registered(text) is not None for text in dag.events.symbols.texts]
    works = {}
    for event in np.flatnonzero(recorded & np.array(known, dtype=bool)[dag.events.name]).tolist():
        call = call_of(dag, event)
        work = work_of(call) if call else None
        if work and work.flops:
            works[event] = call, work
    inner = np.array(list(works), dtype=np.int64)
    multiplies = np.zeros(len(dag.events), dtype=bool)
    multiplies[inner] = True
    caller = nearest(dag.parent, dag.parent[inner].astype(np.int64), multiplies)
    wrong = []
    for one, above in zip(inner.tolist(), caller.tolist(), strict=True):
        if above < 0 or works[above][1].family != works[one][1].family:
            continue
        (call, work), (asked_call, asked) = works[one], works[above]
        bias = sum(tensor.n_bytes[0] for tensor in asked_call.tensors if len(tensor.dims) == 1)
        if work.flops != asked.flops or not 0 <= asked.bytes_low - work.bytes_low <= bias:
            wrong.append((asked_call.label, asked, call.label, work))

    assert wrong == []


@pytest.mark.parametrize(
    "name",
    cases(
        [
            "hta/trace_diff/control/control.json.gz",
            "kineto/worker0.1623143089861.pt.trace.json.gz",
            *_EXPECTED,
        ]
    ),
)
def test_a_row_of_the_table_is_possible(name):
    """No share above 1, and no operator without a roof among those furthest from it."""
    found = light_row(name)

    assert [said for said, is_broken in LAWS.items() if is_broken(found)] == []
    assert "unknown" not in {one["limit"] for one in found["furthest"]}


@pytest.mark.parametrize(
    ("name", "tflop", "share"),
    [
        case("tracelens/torch_compile_triton.json.gz", 5.4976, 0.335),
        case("tracelens/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 5.7607, 0.1173),
        case("tracelens/eager_trace.json.gz", 0.2358, 0.0012),
        case("tracelens/resnet_act_checkpoint.json.gz", 0.4212, 0.0037),
    ],
)
def test_mfu_over_the_time_of_the_device(name, tflop, share):
    """From the first kernel to the last end."""
    graph = hg.load(located(name)).compile()
    events = graph.dag.events
    work = events.is_device
    span_ns = int(events.end_ns[work].max() - events.ts_ns[work].min())
    found = graph.mfu().iloc[0]

    assert found["tflop"] == pytest.approx(tflop, abs=1e-4)
    assert found["peak_ns"] / span_ns == pytest.approx(share, rel=5e-3, abs=5e-5)
