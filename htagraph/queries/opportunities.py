"""Opportunities: candidate changes, each replayed to find what it saves."""

from __future__ import annotations

import pandas as pd

from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.lookup.compiled_work import is_replayed
from htagraph.lookup.data_loaders import find_loading
from htagraph.model.answers import OPPORTUNITIES
from htagraph.model.dag import Dag
from htagraph.model.window import Window
from htagraph.queries.kernel_patterns import kernel_patterns
from htagraph.replay.candidates import candidates, kinds_done
from htagraph.replay.charges import Charges
from htagraph.replay.excerpt import LARGE, Excerpt, excerpt_of
from htagraph.replay.predictions import predictions
from htagraph.replay.rehearsal import Rehearsal

__all__ = ["opportunities", "opportunities_of", "opportunities_on"]

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
    return opportunities_of(excerpt_of(dag, window))


def opportunities_of(part: Excerpt) -> pd.DataFrame:
    """The same, by replays of a part of the graph."""
    segments = critical_path(part.dag, part.window)
    attributed = attributed_time(part.dag, segments)
    return part.scaled(opportunities_on(part.dag, part.window, segments, attributed))


def opportunities_on(
    dag: Dag, window: Window, segments: pd.DataFrame, attributed: pd.DataFrame
) -> pd.DataFrame:
    """The same, given the window's critical path."""
    rehearsal = Rehearsal(dag, window)
    if rehearsal.hold_out.is_too_large:
        return OPPORTUNITIES.empty()
    is_large = len(dag.edges) >= LARGE
    sequences = _sequences(dag, window, _N_FUSIONS_OF_LARGE if is_large else _N_FUSIONS)
    done = kinds_done(is_replayed=is_replayed(dag, window), loading=find_loading(dag))
    charges = Charges.of(dag, rehearsal.expected.replay).with_path(segments, attributed)
    asked = candidates(segments, attributed, charges, sequences, is_large=is_large, done=done)
    _ = rehearsal.readings  # made once, before threads share them
    return predictions(rehearsal, asked, n_threads=_THREADS_OF_LARGE if is_large else 1)


def _sequences(dag: Dag, window: Window, most: int) -> list[tuple[str, ...]]:
    """Sequences of kernels that recur on a stream, by the idle time between them."""
    found = kernel_patterns(dag, window, max_length=_LONGEST, rank_by="gap_ns", top=most)
    return [tuple(names) for names in found.loc[found["gap_ns"] > 0, "pattern"]]
