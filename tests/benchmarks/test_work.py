"""A change does not make a stage, from load to report, do more work than is noted: counts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from htagraph.arrays import objects
from tests.benchmarks.work import BASELINE, EXECUTED, counted_assembly

pytest.importorskip("numpy", minversion="2", reason="its memory handler is elsewhere before")

pytestmark = pytest.mark.slow

LIMIT = 1.05
"""Counts are equal from run to run; on other CPUs, and with another numpy, they differ a little."""

_LOOP = """
define void @htagraph_pass(ptr %words, ptr %same) {
  %1 = load i64, ptr %words
  br label %2

2:
  %3 = phi i64 [ 0, %0 ], [ %4, %2 ]
  %4 = add i64 %3, 1
  %5 = icmp ult i64 %4, %1
  br i1 %5, label %2, label %6

6:
  ret void
}
"""


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, int]]:
    """The work of each stage, counted in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.work"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("stage", ["load", "compile", "path", "verdict", "report"])
def test_a_stage_does_no_more_work_than_is_noted(stage: str, counted: Any) -> None:
    """If it must, run ``python -m tests.benchmarks.work --write`` and say why in the commit."""
    noted = json.loads(BASELINE.read_text())[stage]

    assert counted[stage]["work_ns"] <= LIMIT * noted["work_ns"], (counted[stage], noted)


def test_compiled_code_adds_up_what_it_executes() -> None:
    """Two instructions before the loop, three in each turn without the choice of a value, one."""
    objects.target_machine()
    bitcode = llvm.parse_assembly(counted_assembly(_LOOP)).as_bitcode()
    run = objects.callable_of(objects.object_code(bitcode))
    words = np.array([1000])
    before = EXECUTED.value

    run(words.ctypes.data, words.ctypes.data)

    assert EXECUTED.value - before == 2 + 3 * 1000 + 1
