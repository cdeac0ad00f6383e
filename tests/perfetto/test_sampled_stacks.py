"""Perfetto passes over samples: it shows the same slices, and no error or loss."""

from __future__ import annotations

import json
import time

import pytest

from htagraph.capture.sampler import Sampler

pytestmark = pytest.mark.perfetto


def test_a_trace_with_samples_is_shown_as_one_without(tmp_path, ask):
    """The keys of Chrome's format next to the events."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"baseTimeNanoseconds": 0, "traceEvents": [event]}))
    sampler = Sampler()
    sampler.start()
    time.sleep(0.01)
    sampler.stop()
    sampler.write_into(file)
    (slices,) = ask(file, "select name, ts, dur from slice")

    assert json.loads(file.read_text())["samples"]
    assert slices == [["aten::mm", 5000, 2000]]
