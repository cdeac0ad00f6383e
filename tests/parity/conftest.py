"""The answers of Holistic Trace Analysis 0.6.1, and a trace as it sees it."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from tests.event_rows import taken
from tests.real_traces import CAPTURES, located

_FILES = {
    "alexnet": "critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
    "amd_trace": "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "cuda_event_sync": "critical_path/cuda_event_sync/event_sync_trace.json.gz",
    "cuda_event_sync_multi_stream": (
        "critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz"
    ),
    "cupti_profiler": "cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz",
    "df_index_resolver": "df_index_resolver/df_index_resolver.json.gz",
    "nccl_parser_config": "nccl_parser_config/nccl_data.json.gz",
    "negative_queue_length_values_check": "negative_queue_length_values_check/rank0.json.gz",
    "ns_resolution_trace": "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "simple_add": "critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz",
    "timeline_analysis": "timeline_analysis/sampled_rank-0.json.gz",
    "trace_compare_base": "trace_compare/base/base.json.gz",
    "trace_compare_test": "trace_compare/test/test.json.gz",
    "trace_diff_control": "trace_diff/control/control.json.gz",
    "trace_diff_test": "trace_diff/test/test.json.gz",
    "trace_filter": "trace_filter/sampled_rank-0.json.gz",
    "triton_example": "triton_example/triton_example.json.gz",
}
"""The traces that HTA has answers for."""

TRACES = sorted(_FILES)
_US = 1_000
_ANSWERS = CAPTURES.parent / "hta_answers.json.xz"


def _frame(value: Any) -> Any:
    """A table of the oracle as a DataFrame, lists and dicts of tables alike."""
    if isinstance(value, list):
        return [_frame(item) for item in value]
    if isinstance(value, dict) and value.get("type") == "DataFrame":
        index = [tuple(item) if isinstance(item, list) else item for item in value["index"]]
        columns = [tuple(item) if isinstance(item, list) else item for item in value["columns"]]
        return pd.DataFrame(
            value["rows"], index=pd.Index(index, tupleize_cols=False), columns=columns
        )
    if isinstance(value, dict):
        return {key: _frame(item) for key, item in value.items()}
    return value


@cache
def _answers() -> dict[str, dict[str, Any]]:
    return json.loads(lzma.decompress(_ANSWERS.read_bytes()))


def _answer(trace: str, question: str) -> Any:
    document = _answers()[trace].get(question)
    if document is None:
        pytest.skip(f"no answer of HTA to {question} on {trace}")
    if not document["ok"]:
        pytest.skip(f"HTA fails: {document['error']['type']}")
    return _frame(document["result"])


@pytest.fixture(scope="session")
def hta() -> Callable[[str, str], Any]:
    """HTA's answer to a question on a trace; skips where it has none, or raised."""
    return _answer


def _rounded(events: EventTable, base_time_ns: int) -> EventTable:
    """Events as HTA rounds them: float64 microseconds, starts up, ends down, -1 us taken as 0."""
    whole, rest = np.divmod(events.ts_ns - base_time_ns, _US)
    # As a decimal number is read: at the size of an epoch, to the next quarter of a microsecond.
    start_us, dur_us = whole + rest / _US, events.dur_ns / _US
    start = np.ceil(start_us).astype(np.int64)
    end = np.floor(start_us + dur_us).astype(np.int64)
    return replace(events, ts_ns=start * _US, dur_ns=np.maximum(end - start, 0) * _US)


def _without_last_step(events: EventTable) -> EventTable:
    """The events that HTA keeps: host events before the last step, and the work they launched."""
    is_step = (events.kind == EventKind.ANNOTATION) & events.named(
        events.symbols.mask(lambda name: name.startswith("ProfilerStep#"))
    )
    if len(np.unique(events.name[is_step])) < 2:
        return events
    on_host = ~events.is_device & (events.ts_ns < events.ts_ns[is_step].max())
    ids = np.unique(events.correlation[on_host & (events.correlation >= 0)])
    kept = on_host | (events.is_device & np.isin(events.correlation, ids))
    return taken(events, np.flatnonzero(kept))


_loaded: dict[tuple[str, bool], tuple[hg.Trace, Dag]] = {}


def _load(trace: str, *, as_hta: bool) -> tuple[hg.Trace, Dag]:
    if (trace, as_hta) not in _loaded:
        read = hg.load(located(f"hta/{_FILES[trace]}"))
        events, origin = read.recording.events, read.recording.origin
        if as_hta:
            events = _without_last_step(_rounded(events, origin.base_time_ns if origin else 0))
        _loaded[trace, as_hta] = read, compile_events(events)
    return _loaded[trace, as_hta]


@pytest.fixture(scope="session")
def as_hta_sees() -> Callable[[str], Dag]:
    """The graph of a trace on the events that HTA keeps, rounded as it rounds."""
    return lambda trace: _load(trace, as_hta=True)[1]


@pytest.fixture(scope="session")
def as_it_is() -> Callable[[str], tuple[hg.Trace, Dag]]:
    """A trace and its graph, unchanged."""
    return lambda trace: _load(trace, as_hta=False)


@pytest.fixture(scope="session")
def kernel_time() -> Callable[[Dag], Window]:
    """HTA's window: from the first start to the last end of device work."""

    def window(dag: Dag) -> Window:
        device = dag.events.is_device
        if not device.any():
            pytest.skip("no device work")
        return Window(
            int(dag.events.ts_ns[device].min()), int(dag.events.end_ns[device].max()), "device work"
        )

    return window


def _case(trace: str) -> Any:
    return pytest.param(trace, marks=pytest.mark.public(f"hta/{_FILES[trace]}"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask every test that takes a trace of every trace."""
    if "trace" in metafunc.fixturenames:
        metafunc.parametrize("trace", [_case(trace) for trace in TRACES])
