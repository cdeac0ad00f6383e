"""Perfetto's protobuf: the bytes of a file → packets → slices → a `Recording`.

Packets of events are scanned by compiled code (`compiled`); all others, which are few, are parsed
by the classes of the perfetto package (`sequences`). What we wrote is read back as it was (`own`);
what others wrote becomes lanes and events by its tracks (`foreign`).
"""
