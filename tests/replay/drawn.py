"""Drawn traces to be replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

import htagraph as hg
from htagraph.arrays.retime import retime
from htagraph.model.kinds import EventKind
from htagraph.replay.changes import Change
from htagraph.replay.replay import Replay
from htagraph.synth import timeline


def drawn(
    drawing: str,
    *,
    frames: tuple[str, ...] = (),
    names: Mapping[str, str] | None = None,
    columns: Mapping[str, Mapping[str, int | float | str]] | None = None,
) -> hg.TraceGraph:
    """The graph of a drawing in which some boxes are Python frames."""
    events = timeline(drawing, names=names, columns=columns)
    is_frame = np.isin(events.names(), [(names or {}).get(frame, frame) for frame in frames])
    kind = np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8)
    return hg.Trace.from_events(replace(events, kind=kind)).compile()


def replayed(replay: Replay) -> npt.NDArray[np.int64]:
    """The time of each position of a replay without changes."""
    return retime(replay.offsets, replay.tail, replay.weight_ns, replay.release_ns)


def saved_us(graph: hg.TraceGraph, *changes: Change) -> float:
    """What changes are expected to save in the window of a graph."""
    scenario = hg.what_if(graph, *changes)
    return (graph.dur_ns - scenario.dur_ns) / 1000
