"""Flame graphs in files, as other viewers read them."""

from __future__ import annotations

import gzip
import json

from htagraph import Trace
from htagraph.synth import timeline


def test_lines_and_speedscope_have_each_stack_with_its_time(tmp_path):
    """And all of the window; names lose what separates them."""
    drawing = "thread 1 |{train [aten::mm   ][b;c   ][aten::mm ]}"
    path = Trace.from_events(timeline(drawing)).compile().critical_path()
    text, scope = tmp_path / "x.collapsed.gz", tmp_path / "x.speedscope.json"

    path.flame(text)
    path.flame(scope)

    lines = gzip.decompress(text.read_bytes()).decode().splitlines()
    assert lines == ["train;aten::mm 24000", "train 8000", "train;b,c 8000"]
    document = json.loads(scope.read_text())
    (profile,), names = document["profiles"], [one["name"] for one in document["shared"]["frames"]]
    stacks = [";".join(names[at] for at in stack) for stack in profile["samples"]]
    assert stacks == ["train", "train;aten::mm", "train;b,c"]
    assert profile["weights"] == [8_000, 24_000, 8_000]
    assert profile["endValue"] == path.dur_ns == 40_000
