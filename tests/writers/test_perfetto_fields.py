"""The numbers of Perfetto's schema, which htagraph keeps by name."""

from __future__ import annotations

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

from htagraph.model import perfetto_fields

MESSAGES = {
    "TRACE_": schema.Trace,
    "PACKET_": schema.TracePacket,
    "EVENT_": schema.TrackEvent,
    "ANNOTATION_": schema.DebugAnnotation,
    "DESCRIPTOR_": schema.TrackDescriptor,
}
ENUMS = {
    "TYPE_": schema.TrackEvent.Type,
    "SEQ_": schema.TracePacket.SequenceFlags,
    "BUILTIN_CLOCK_": schema.BuiltinClock,
    "EXPLICIT": schema.TrackDescriptor.ChildTracksOrdering,
    "PROCESS_ORDERING_": schema.TrackDescriptor.ProcessOrdering,
}


@pytest.mark.parametrize(
    ("name", "number"),
    [item for item in vars(perfetto_fields).items() if item[0].isupper()],
)
def test_a_number_is_that_of_the_schema(name: str, number: int) -> None:
    """Of a field its message is the prefix; a value of an enumeration has its whole name."""
    for prefix, enum in ENUMS.items():
        if name.startswith(prefix):
            assert enum.Value(name) == number
            return
    (prefix,) = (one for one in MESSAGES if name.startswith(one))
    fields = MESSAGES[prefix].DESCRIPTOR.fields_by_name
    assert fields[name.removeprefix(prefix).lower()].number == number
