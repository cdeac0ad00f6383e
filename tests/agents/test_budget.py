"""Answers are as short as asked, and say what they leave out."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from htagraph.agents.documents import (
    CHARACTERS_PER_TOKEN,
    LEAST_TOKENS,
    Part,
    as_json,
    fitted,
    plain,
    rows_part,
)
from htagraph.agents.tools import TOOLS

TEXTS = st.text(max_size=400)
PARTS = st.lists(
    st.builds(
        lambda items, columns: (items, columns),
        st.lists(TEXTS, max_size=20),
        st.sampled_from([(), ("name",)]),
    ),
    max_size=6,
)


@given(found=PARTS, max_tokens=st.integers(LEAST_TOKENS, 3_000))
def test_an_answer_is_never_longer_than_asked(found, max_tokens):
    """Whatever is in it, and what it leaves out is counted."""
    parts = [
        Part(f"part {at}", [[one] for one in items], len(items), "offset={next}.", columns)
        for at, (items, columns) in enumerate(found)
    ]

    answer = fitted({"head": "x" * 200}, parts, max_tokens)

    assert len(as_json(answer)) <= 4 * max_tokens
    for part in parts:
        got = answer.get(part.name, [])
        n_shown = len(got["rows"] if isinstance(got, dict) else got)
        said = answer.get("left_out", {}).get(part.name, "0 of")
        assert n_shown + int(said.split(" of")[0]) == part.n_all


def test_rows_left_out_are_got_by_the_next_offset():
    """Pages do not overlap, and miss nothing."""
    frame = pd.DataFrame({"name": ["x" * 100] * 40, "n": range(40)})
    seen: list[int] = []
    while True:
        rows = rows_part("rows", frame, "offset={next}.", offset=len(seen), limit=12)
        answer = fitted({}, [rows], 400)
        seen += [row[1] for row in answer["rows"]["rows"]]
        if "left_out" not in answer:
            break
        assert answer["left_out"]["rows"].endswith(f"offset={len(seen)}.")

    assert seen == list(range(40))


def test_values_are_those_that_json_has():
    """No number that is none, no control character, no name without end."""
    given_ = {
        "nan": float("nan"),
        "inf": np.float64("inf"),
        "n": np.int64(2**60),
        "share": 0.123456789,
        "is": np.True_,
        "none": pd.NA,
        "name": "a\x1b]0;x\x07\nb\u202e",
        "long": "x" * 1_000,
    }
    value = plain(given_)

    assert json.loads(as_json(value)) == value
    assert [value["nan"], value["inf"], value["n"], value["share"]] == [None, None, 2**60, 0.123457]
    assert value["is"] is True
    assert value["none"] is None
    assert value["name"] == "a␛]0;x␇ b\ufffd"
    assert (len(value["long"]), value["long"][80]) == (120, "…")


def test_a_schema_says_all_that_a_tool_takes():
    """Every parameter has a meaning."""
    schemas = {tool: tool.input_schema() for tool in TOOLS.values()}
    fields = [field for schema in schemas.values() for field in schema["properties"].values()]

    assert all(field["description"] for field in fields)
    assert all(tool.meaning() for tool in schemas)


def test_all_tools_together_take_less_than_3600_tokens():
    """Of a client's context: names, descriptions and schemas, counted as answers are."""
    tools = [
        {"name": tool.name, "description": tool.meaning(), "inputSchema": tool.input_schema()}
        for tool in TOOLS.values()
    ]

    assert len(as_json(tools)) < 3_600 * CHARACTERS_PER_TOKEN
