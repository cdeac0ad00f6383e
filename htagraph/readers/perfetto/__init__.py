"""Reads Perfetto's protobuf traces: bytes → packets → slices → a `Recording`.

Compiled code scans the packets of events (`compiled`); the classes of the perfetto package parse
all others, which are few (`packet_sequences`). A trace by htagraph is restored as recorded
(`htagraph_events`); in one by another tool, tracks become lanes and slices events
(`foreign_events`).
"""
