"""Sends and receives of the host overlap what their thread does next, and do not enclose it."""

from __future__ import annotations

import json
from pathlib import Path

from htagraph import load


def parents(folder: Path, events: list[tuple[str, int, int]]) -> dict[str, str]:
    """The name of each event's parent, by its own name; times in us."""
    rows = [
        {
            "ph": "X",
            "cat": "cpu_op" if "::" in name else "user_annotation",
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": start,
            "dur": end - start,
        }
        for name, start, end in events
    ]
    (folder / "rank0.json").write_text(json.dumps({"traceEvents": rows}))
    dag = load(folder / "rank0.json").compile().dag
    names = ["", *dag.events.names().tolist()]
    return {name: names[at + 1] for name, at in zip(names[1:], dag.parent.tolist(), strict=True)}


def test_what_runs_until_a_transfer_is_waited_for_is_no_part_of_it(tmp_path: Path) -> None:
    """Nor of the call that began it: the step encloses all."""
    found = parents(
        tmp_path,
        [
            ("ProfilerStep#0", 0, 1_000),
            ("c10d::send", 10, 50),
            ("gloo:send", 40, 600),
            ("aten::mm", 100, 300),
            ("aten::fill_", 120, 150),
            ("c10d::recv_", 310, 350),
            ("gloo:recv", 340, 800),
            ("aten::add", 400, 550),
            ("aten::mul", 620, 700),
        ],
    )
    step = "ProfilerStep#0"
    assert found == {
        step: "",
        "c10d::send": step,
        "gloo:send": "c10d::send",
        "aten::mm": step,
        "aten::fill_": "aten::mm",
        "c10d::recv_": step,
        "gloo:recv": "c10d::recv_",
        "aten::add": step,
        "aten::mul": step,
    }


def test_a_transfer_within_its_call_encloses_what_it_does(tmp_path: Path) -> None:
    """A call that blocks until it is done."""
    found = parents(
        tmp_path, [("c10d::send", 0, 500), ("gloo:send", 10, 490), ("aten::copy_", 20, 60)]
    )
    assert found["aten::copy_"] == "gloo:send"
