"""The same work on two devices: which operators and shapes make the difference."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.comparison.limits import Limits, check_run
from htagraph.comparison.run_profile import RunProfile
from htagraph.reports.gate import diff_document, diff_parts
from tests.queries.recorded_shapes import H100, Op, recorded
from tests.real_traces import located

MI300X = {**H100, "name": "AMD Instinct MI300X", "numSms": 304, "warpSize": 64}
SOFTMAX, MM = [[512, 4096, 128]], [[8192, 8192], [8192, 2048]]


def run(device: dict[str, Any], library: str, *, softmax_us: int, mm_us: int) -> hg.TraceGraph:
    """A step of softmax of 1.07 GB, one of a product of 275 GFLOP, with kernels of a library."""
    ops = [
        Op("aten::_softmax", SOFTMAX, [(f"{library}_softmax", softmax_us)]),
        Op("aten::mm", MM, [(f"{library}_gemm", mm_us)]),
    ]
    return recorded(*ops, device=device, is_awaited=True).window("trace")


@pytest.fixture(scope="module")
def profiles() -> list[RunProfile]:
    return [
        hg.run_profile(run(H100, "cublas", softmax_us=400, mm_us=400)),
        hg.run_profile(run(MI300X, "rocblas", softmax_us=1_300, mm_us=420)),
    ]


def test_the_same_work_on_another_device_is_compared_by_shape(profiles):
    """No kernel has a common name."""
    found = hg.diff(*profiles)
    table = found.shapes().set_index("name")

    assert found.verdict() == (
        "Same work on another device: its kernels took 400 us a step, and take 860 us now; "
        "aten::_softmax [512, 4096, 128] 200 us, now 650 us."
    )
    assert found.details.startswith(
        "On NVIDIA H100 80GB HBM3 before, on AMD Instinct MI300X after."
    )
    assert table["delta_ns"].tolist() == [450_000, 10_000]
    assert table["before_roof"].round(2).tolist() == [0.8, 0.69]
    assert table["after_roof"].round(2).tolist() == [0.16, 0.5]


def test_a_gate_does_not_judge_another_device(profiles):
    before, after = profiles

    checked = check_run(after, Limits(fail_above=0.05), baseline=before)
    assert checked.state == "withheld"


def test_every_surface_leads_with_the_shapes(profiles, tmp_path, capsys, monkeypatch):
    before, after = (
        one.save(tmp_path / f"{name}.json") for one, name in zip(profiles, "ab", strict=True)
    )
    found = hg.diff(RunProfile.read(before), RunProfile.read(after))
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["diff", str(before), str(after), "--out", str(tmp_path / "page.html")])
    said = capsys.readouterr().out

    assert said.startswith("Same work on another device")
    assert "before, of roof" in said
    assert "aten::mm [8192, 8192] [8192, 2048]" in said
    assert len(diff_document(found)["by_shape"]) == 2
    assert diff_parts(found)[0].startswith("| name")
    assert "on both devices" in (tmp_path / "page.html").read_text()


def test_other_shapes_are_other_work(profiles):
    other = [Op("aten::_softmax", [[512, 4096, 64]], [("rocblas_softmax", 300)])]
    found = hg.diff(
        profiles[0],
        hg.run_profile(recorded(*other, device=MI300X, is_awaited=True).window("trace")),
    )

    assert not found.is_elsewhere
    assert found.verdict().startswith("Not comparable: on NVIDIA H100 80GB HBM3 before, on AMD")


def test_another_job_is_not_only_another_device(profiles):
    wide = replace(profiles[1], n_ranks=8)

    assert hg.diff(profiles[0], wide).verdict().startswith("Not comparable")


def test_one_device_is_compared_by_its_steps(profiles):
    found = hg.diff(profiles[0], profiles[0])

    assert not found.is_elsewhere
    assert diff_document(found)["by_shape"] == []


QWEN = "tracelens/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"


@pytest.mark.public(QWEN)
def test_a_real_trace_with_another_device(tmp_path):
    """A model on an H100, and the same with other kernels, attention three times as slow."""
    document = json.loads(gzip.decompress(located(QWEN).read_bytes()))
    document["deviceProperties"][0] |= {"name": "AMD Instinct MI300X", "numSms": 304}
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            event["dur"] *= 3 if "flash" in event["name"] else 1
            event["name"] = f"ck_{event['name'][:8]}"
    file = tmp_path / "mi300x.json"
    file.write_text(json.dumps(document))
    found = hg.diff(hg.load(located(QWEN)), hg.load(file)).runs
    first = found.shapes().iloc[0]

    assert found.is_elsewhere
    assert first["name"] == "aten::scaled_dot_product_attention 3x [16, 16, 559, 64]"
    assert first["after_ns"] == pytest.approx(3 * first["before_ns"], rel=1e-3)
    assert first["after_roof"] < first["before_roof"] / 3
