"""The bracket that closes the list of events, found in pieces of any size."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.writers.array_end import ArrayEnd

TEXT = st.text(alphabet='ab\\"[]{}:, \n', max_size=12)
JSON = st.recursive(
    TEXT | st.integers() | st.none(),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(TEXT, child, max_size=3),
    max_leaves=8,
)


def find(text: bytes, size: int) -> tuple[int, bool]:
    """The place of the bracket, and whether the list is empty, when fed in pieces of a size."""
    search = ArrayEnd()
    for first in range(0, len(text), size):
        position = search.feed(text[first : first + size])
        if position >= 0:
            return first + position, search.is_empty
    return -1, search.is_empty


@given(JSON, JSON, st.lists(JSON, max_size=4), st.sampled_from([None, 1]), st.integers(1, 40))
def test_what_is_put_there_is_the_last_event(
    before: object, after: object, events: list[object], indent: int | None, size: int
) -> None:
    """Law: an event before the bracket is the last one of the list, and nothing else changes."""
    document = {"a[": before, "traceEvents": events, "z": after}
    text = json.dumps(document, indent=indent).encode()
    position, is_empty = find(text, size)
    comma = b"" if is_empty else b","
    assert json.loads(text[:position] + comma + b'"new"' + text[position:]) == {
        **document,
        "traceEvents": [*events, "new"],
    }


@given(st.lists(JSON, max_size=4), st.integers(1, 40))
def test_a_bare_list_is_a_list_of_events(events: list[object], size: int) -> None:
    """Chrome's format has two forms; the list alone is one."""
    text = json.dumps(events).encode()
    assert find(text, size) == (len(text) - 1, not events)


def test_a_list_within_another_key_is_passed_over() -> None:
    """Only the key at the top of the document counts, not its namesake in an argument."""
    text = b'{"x": {"traceEvents": [1]}, "y": "\\"traceEvents\\": [", "traceEvents": [ ]}'
    assert find(text, 7) == (len(text) - 2, True)


@pytest.mark.parametrize("text", [b"", b"{}", b'{"traceEvents": [{"a": "]"}', b'{"x": []}'])
def test_a_list_without_end_is_not_found(text: bytes) -> None:
    """A file cut off in the middle has no such bracket."""
    assert find(text, 5)[0] == -1
