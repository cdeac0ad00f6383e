"""Small Kineto files for the tests of the reader."""

from __future__ import annotations

import json
from typing import Any

import pytest


def event(name: str = "aten::mm", **fields: Any) -> dict[str, Any]:
    """A host operator, or what `fields` make of it."""
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": 10,
        "dur": 5,
    } | fields


def file_of(*events: dict[str, Any] | str, **header: Any) -> bytes:
    """A file with events, each as a dict or as its text."""
    texts = (one if isinstance(one, str) else json.dumps(one) for one in events)
    separator = ",\n"
    keys = "".join(f"{json.dumps(key)}: {json.dumps(value)}, " for key, value in header.items())
    return f'{{{keys}"traceEvents": [\n{separator.join(texts)}\n]}}'.encode(
        "utf-8", "surrogateescape"
    )


@pytest.fixture(name="event")
def event_maker() -> Any:
    return event


@pytest.fixture(name="file_of")
def file_maker() -> Any:
    return file_of
