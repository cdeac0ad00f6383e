"""Opportunities: candidate changes, each replayed to find what it saves."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from htagraph.explain.attributed import Attributed
from htagraph.explain.attributed_time import attributed
from htagraph.explain.critical_path import path_segments
from htagraph.explain.segments import Segments, segment_labels
from htagraph.lookup.compiled_work import can_capture
from htagraph.lookup.data_loaders import find_loading
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window
from htagraph.queries.kernel_patterns import kernel_patterns
from htagraph.replay.candidates import Candidate, kinds_done, of_causes, of_parts
from htagraph.replay.charges import Charges
from htagraph.replay.excerpt import LARGE, Excerpt, excerpt_of
from htagraph.replay.predictions import Trials
from htagraph.replay.rehearsal import Rehearsal

_LONGEST = 8
"""Kernels of a sequence to fuse. Chosen: test_opportunities draws longer ones."""
_N_FUSIONS, _N_FUSIONS_OF_LARGE = 5, 2
"""Sequences to fuse; of a large graph fewer. A limit of time: test_opportunities counts them."""
_THREADS_OF_LARGE = 2
"""Each needs about 60 bytes an edge, so that two fit wherever the graph does. A limit of
memory, not of the answer."""


def opportunities(dag: Dag, window: Window) -> pd.DataFrame:
    """Changes predicted to shorten a window, with what each saves.

    The graph is replayed with each change made throughout the trace. The interval covers what the
    trace leaves open (`htagraph.replay.assumptions`). Rows do not add up. From a million edges on,
    some of the steps that do the same are replayed for all (`htagraph.replay.excerpt`).

    Returns
    -------
    DataFrame, schema `answers.OPPORTUNITIES`
        Largest expected saving first. Empty if steps predict each other too badly
        (`htagraph.replay.hold_out`).
    """
    part = excerpt_of(dag, window)
    return part.scaled(trials_of(part).opportunities)


def trials_of(part: Excerpt) -> Trials[Rehearsal]:
    """Changes to a part of a graph, each replayed when it is asked for."""
    segments = path_segments(part.dag, [part.window])
    return trials_on(part.dag, part.window, segments, attributed(part.dag, segments))


def trials_on(
    dag: Dag, window: Window, segments: Segments, charged: Attributed
) -> Trials[Rehearsal]:
    """The same of a window, given its critical path."""
    rehearsal, is_large = Rehearsal(dag, window), len(dag.edges) >= LARGE

    edges = pd.DataFrame({"edge": segments.edge})

    def charges() -> Charges:
        return Charges.of(dag, rehearsal.expected.replay).with_path(edges, charged.causes())

    def causes(charges: Charges) -> Iterator[Candidate]:
        if rehearsal.hold_out.is_too_large:
            return
        yield from of_causes(edges, charged.causes(), charges)
        if is_large:
            _ = rehearsal.readings  # made once, before threads share them

    def parts() -> Iterator[Candidate]:
        if rehearsal.hold_out.is_too_large:
            return
        done = kinds_done(can_capture=can_capture(dag, window), loading=find_loading(dag))
        sequences = _sequences(dag, window, _N_FUSIONS_OF_LARGE if is_large else _N_FUSIONS)
        columns = {"event": segments.event, "edge": segments.edge, "dur_ns": segments.dur_ns}
        labels = {
            name: categorical(*segment_labels(dag, segments, name)) for name in ("bound", "name")
        }
        frame = pd.DataFrame(labels | columns, copy=False)
        yield from of_parts(frame, charged.labels(), sequences, is_large=is_large, done=done)

    n_threads = _THREADS_OF_LARGE if is_large else 1
    return Trials(rehearsal, charges, causes, parts, n_threads)


def _sequences(dag: Dag, window: Window, most: int) -> Iterator[tuple[str, ...]]:
    """Yield sequences of kernels that recur on a stream, by the idle time between them."""
    found = kernel_patterns(dag, window, max_length=_LONGEST, rank_by="gap_ns", top=most)
    yield from map(tuple, found.loc[found["gap_ns"] > 0, "pattern"])
