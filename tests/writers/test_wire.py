"""Bytes by the column are what protobuf itself reads."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from htagraph.writers.slice_packets import (
    assemble,
    fixed64_field,
    message_field,
    varint,
    varint_field,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, min_size=1, max_size=20))
def test_numbers_of_a_column_are_read_back(numbers: list[int]) -> None:
    """Varints padded to the width of the longest are still varints."""
    column = np.array(numbers, dtype=np.int64)
    rows = assemble(len(numbers), varint_field(4, column))
    assert [
        perfetto_trace_pb2.DebugAnnotation.FromString(row.tobytes()).int_value for row in rows
    ] == numbers


@given(
    st.lists(
        st.tuples(st.floats(allow_nan=False), st.integers(0, 2**63 - 1)), min_size=1, max_size=20
    )
)
def test_fixed_width_fields_are_read_back(pairs: list[tuple[float, int]]) -> None:
    """Counter values and flow ids have a fixed width of 8 bytes."""
    values, ids = (np.array(column) for column in zip(*pairs, strict=True))
    rows = assemble(
        len(pairs), [*fixed64_field(44, values), *fixed64_field(47, ids.astype(np.int64))]
    )
    events = [perfetto_trace_pb2.TrackEvent.FromString(row.tobytes()) for row in rows]
    assert [(event.double_counter_value, event.flow_ids[0]) for event in events] == pairs


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**40), min_size=1, max_size=5))
def test_messages_nest(constant: int, column: list[int]) -> None:
    """What is equal in all rows is passed once and repeated in each."""
    packet = [*varint_field(8, constant), *message_field(11, varint_field(10, np.array(column)))]
    trace = perfetto_trace_pb2.Trace.FromString(
        assemble(len(column), message_field(1, packet)).tobytes()
    )
    assert [packet.timestamp for packet in trace.packet] == [constant] * len(column)
    assert [packet.track_event.name_iid for packet in trace.packet] == column


def test_a_varint_is_as_short_as_it_can_be() -> None:
    """The examples of the protobuf documentation."""
    assert [varint(number).hex() for number in (0, 1, 127, 128, 150)] == [
        "00",
        "01",
        "7f",
        "8001",
        "9601",
    ]
