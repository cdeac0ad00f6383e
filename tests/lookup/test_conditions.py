"""Conditions compare columns, and reach nothing else."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.errors import QueryError
from htagraph.lookup.selecting import rows_where

FRAME = pd.DataFrame(
    {
        "name": pd.Categorical(["gemm", "add", "nccl"]),
        "dur_ns": [5, 7, 1_000],
        "share": [0.5, float("nan"), 0.1],
        "is_inferred": [True, False, False],
        "SM busy": [20, 50, 30],
        "stream": pd.array([7, 20, None], dtype="Int64"),
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
        ("dur_ns % 2 == 1 and dur_ns // 2 == 3", ["add"]),
        ("(dur_ns < 6) | ~(dur_ns < 1_000)", ["gemm", "nccl"]),
        ("name.str.contains('cc') or name.str.endswith('dd')", ["add", "nccl"]),
        ("name.str.startswith('g')", ["gemm"]),
        ("`SM busy` > 40", ["add"]),
        ("stream * 2 == 14", ["gemm"]),
        ("stream not in [20]", ["gemm", "nccl"]),
        ("3 > 2 and share != share", ["add"]),
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
        "name.str.contains('g.*m')",
        "name.str.match('g+')",
        "name.str.cat(name.to_csv('out.csv')) == 1",
        "dur_ns.to_pickle('out.pkl')",
        "name.map(print)",
        "name < 'gemm'",
        "nothing > 1",
        "dur_ns > ",
        "-name == 1",
        "(" * 5_000,
    ],
)
def test_all_else_is_refused(where):
    """Calls, attributes, powers: whatever a name in a trace may talk a client into."""
    with pytest.raises(QueryError, match="is not a condition"):
        rows_where(FRAME, where)
