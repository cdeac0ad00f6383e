"""The true cause of every instant of a trace: what each start and end waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from htagraph.model.schema import Schema, duration, identifier, label
from tests.synth.recorder import Recorder
from tests.synth.truth import Mark, Release

CAUSES = Schema(
    "CAUSES",
    {
        "node": identifier("twice the event for its start, one more for its end", unit="node"),
        "release": label("what the instant waited for", unit="Release", dtype="object"),
        "source": identifier(
            "the work, call or host event that was waited for; -1 for none", unit="event"
        ),
        "late_ns": duration("how much sooner the instant would have come without it"),
        "own_ns": duration("what the host thread itself needed after the release"),
    },
)


def causes_frame(recorder: Recorder) -> pd.DataFrame:
    """Causes of all instants of a simulated rank, as a frame of schema `CAUSES`."""
    node_of = {id(mark): node for node, mark in reversed(recorder.nodes.items())}
    rows = list(_causes(recorder, node_of))
    names = list(CAUSES.columns)
    return CAUSES.frame(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _causes(
    recorder: Recorder, node_of: dict[int, int]
) -> Iterator[tuple[int, str, int, int, int]]:
    """The rows of `CAUSES`."""
    first = recorder.first_row
    for node, mark in sorted(recorder.nodes.items()):
        is_device = recorder.rows[node >> 1].device >= 0
        if is_device and node & 1:
            continue
        found = mark if is_device else _released(mark, node_of)
        source = _source(found, node_of)
        if found.release is Release.LAUNCH:
            source = recorder.launched_by[node >> 1]
        yield (
            node - 2 * first,
            found.release.value,
            max(source - first, -1),
            found.late_ns,
            mark.ts_ns - found.ts_ns,
        )


def _released(mark: Mark, node_of: dict[int, int]) -> Mark:
    """The instant since which nothing but its own thread held up a host instant."""
    found = mark
    while found.release is Release.OWN:
        if found.cause is None or id(found.cause) in node_of:
            return mark
        found = found.cause
    return found


def _source(mark: Mark, node_of: dict[int, int]) -> int:
    """The event that an instant waited for, -1 for its own."""
    if mark.cause is None or mark.release is Release.OWN:
        return -1
    if mark.release is Release.DEVICE_FULL:
        return mark.event
    cause = mark.cause
    while cause.release is Release.OWN and id(cause) not in node_of and cause.event < 0:
        if cause.cause is None:
            return -1
        cause = cause.cause
    return node_of[id(cause)] >> 1 if id(cause) in node_of else cause.event
