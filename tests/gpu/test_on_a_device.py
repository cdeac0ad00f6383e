"""What htagraph says of programs with a known truth, on a GPU and on CPU tensors."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph.errors import TraceFormatError

_ROOT = Path(__file__).parents[2]
_LARGEST = 300_000
"""Bytes of a capture that may be kept."""
_BOOST = 1.1
"""Devices may clock higher than the data sheet's peak assumes: an H100 by 8%."""
_NOTICEABLE = 0.2
"""Share of a step that a repair must save, or cost, before its sign is sure."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
]
ON_CPU = pytest.param("cpu", marks=pytest.mark.torch)
ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)
ON_BOTH = pytest.mark.parametrize("device", [ON_CPU, ON_GPU])


def _python(*command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )


@cache
def _has_gpu() -> bool:
    code = "import torch; print(torch.cuda.is_available() and torch.version.hip is None)"
    return _python("-c", code).stdout.split()[-1:] == ["True"]


def found(part: str, device: str, out: Path) -> dict[str, Any]:
    """What a part of the programs found."""
    if device == "cuda" and not _has_gpu():
        pytest.skip("needs an NVIDIA GPU")
    done = _python("-m", "tests.gpu", "--device", device, "--only", part, "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "truth.json").read_text())["parts"]


@ON_BOTH
def test_operators_have_the_work_that_is_known_by_hand(tmp_path, device):
    """Operations exactly, bytes within the interval, nothing beyond the device's peaks."""
    rows = found("operators", device, tmp_path)["operators"]["rows"]
    wrong = [
        row
        for row in rows
        if row["found_gflop"] != row["gflop"]
        or not row["found_bytes"][0] <= row["bytes"] <= row["found_bytes"][1]
        or row["peak_share"] > _BOOST
        or row["unmodelled"]
    ]

    assert len(rows) == 14
    assert wrong == []


@ON_BOTH
def test_a_device_is_no_faster_than_its_peaks(tmp_path, device):
    """And a trace shows the rates that its own clock shows, but of copies that the host stages."""
    rows = found("roofs", device, tmp_path)["roofs"]["rows"]

    assert {"product, fp32", "product, bf16", "memory, copy"} <= {row["roof"] for row in rows}
    assert all(row["tera_per_s"] > 0 for row in rows)
    assert [row for row in rows if row["share"] > _BOOST] == []
    for row in rows if device == "cuda" else ():
        if "pageable" in row["roof"]:
            continue
        assert row["traced_tera_per_s"] == pytest.approx(row["tera_per_s"], rel=0.25), row["roof"]


@ON_BOTH
def test_a_recorded_block_has_its_steps_and_its_waits(tmp_path, device):
    """Each of three steps waits once, in ``.item()``; a GPU's waits have records."""
    (row,) = found("handling", device, tmp_path)["handling"]["rows"]

    assert (row["steps"], row["items"]) == (3, 3)
    assert (row["kernels"] > 0, row["waits recorded"] >= 3) == 2 * (device == "cuda",)
    assert row["unknown_waits"] < 0.2


@ON_BOTH
def test_repairs_are_measured_and_predicted(tmp_path, device):
    """What saves or costs much in reality does so by the prediction, too."""
    rows = found("pairs", device, tmp_path)["pairs"]["rows"]
    wrong = []
    for row in rows:
        before, after = row["before"]["ms"], row["after"]["ms"]
        predicted = row["predicted"].get("ms", math.nan)
        if abs(after - before) > _NOTICEABLE * before and (predicted < before) != (after < before):
            wrong.append(row)

    assert len(rows) == {"cpu": 4, "cuda": 6}[device]
    assert wrong == []
    assert [file for file in tmp_path.glob("*.gz") if file.stat().st_size > _LARGEST] == []


@pytest.mark.parametrize("device", [ON_GPU])
def test_a_replayed_graph_has_the_operators_of_its_capture(tmp_path, device):
    """Products of each replay, if its capture can be joined: CUDA may not name what it captured."""
    for row in found("graphs", device, tmp_path)["graphs"]["rows"]:
        replay, capture = tmp_path / row["replay"], tmp_path / row["capture"]
        try:
            trace = hg.load(replay, beside=[capture])
        except TraceFormatError as error:
            pytest.skip(f"captures cannot be joined: {error}")
        said = trace.attached.iloc[0]
        if not said["n_matched"]:
            pytest.skip(f"this capture cannot be joined: {said['detail']}")
        graph = trace.compile()
        products = graph.roofline(by="family").set_index("group").loc["gemm"]

        assert products["n_calls"] == row["n_products"]
        assert products["gflop"] == pytest.approx(row["gflop"])


@pytest.mark.parametrize("device", [ON_GPU])
def test_samples_of_nvidia_smi_are_placed_on_the_traces(tmp_path, device):
    """By the wall clock, near the capture that took longest."""
    parts = found("roofs", device, tmp_path)
    if "sampling" not in parts:
        pytest.skip("needs nvidia-smi")
    (row,) = parts["sampling"]["rows"]

    assert row["instrument"] == "nvidia-smi"
    assert int(row["n_matched"]) > 0, row["detail"]
