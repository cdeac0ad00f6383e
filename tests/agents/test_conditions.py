"""Conditions compare columns, and reach nothing else."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.agents.conditions import rows_where
from htagraph.errors import QueryError

FRAME = pd.DataFrame(
    {
        "name": pd.Categorical(["gemm", "add", "nccl"]),
        "dur_ns": [5, 7, 1_000],
        "share": [0.5, float("nan"), 0.1],
        "is_inferred": [True, False, False],
    }
)


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("dur_ns > 6", ["add", "nccl"]),
        ("5 < dur_ns <= 1_000", ["add", "nccl"]),
        ("dur_ns * 2 - 4 == 10", ["add"]),
        ("name == 'gemm' or 'cc' in name", ["gemm", "nccl"]),
        ("'cc' not in name and not is_inferred", ["add"]),
        ("name in ['add', 'gemm']", ["gemm", "add"]),
        ("dur_ns not in (5, 7)", ["nccl"]),
        ("is_inferred", ["gemm"]),
        ("share > 0.2", ["gemm"]),
        ("dur_ns > -1 and True", ["gemm", "add", "nccl"]),
    ],
)
def test_rows_for_which_a_condition_holds(where, names):
    """As Python reads it, for every row."""
    assert rows_where(FRAME, where)["name"].tolist() == names


@pytest.mark.parametrize(
    "where",
    [
        "@pd.io.common.os.system('echo') == 0",
        "name.to_csv('out.csv') == 1",
        "dur_ns.__class__ == 1",
        "__import__('os') == 1",
        "(lambda: 1)() == 1",
        "[one for one in name] == 1",
        "name[0] == 'gemm'",
        "f'{name}' == 'gemm'",
        "9 ** 9 ** 9 > dur_ns",
        "'a' * 1_000_000_000_000 == name",
        "name + name == 'a'",
        "dur_ns",
        "dur_ns > 'gemm'",
        "dur_ns / 0 > 1",
        "nothing > 1",
        "dur_ns > ",
        "-name == 1",
        "(" * 5_000,
    ],
)
def test_all_else_is_refused(where):
    """Calls, attributes, powers: whatever a name in a trace may talk a client into."""
    with pytest.raises(QueryError, match="is no condition"):
        rows_where(FRAME, where)
