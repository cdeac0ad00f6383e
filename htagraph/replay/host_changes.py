"""Changes to what the host does: replays in place of launches, loading beside the step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.codes import distinct
from htagraph.errors import QueryError
from htagraph.lookup.attribution import DATA_LOADING
from htagraph.lookup.compiled_work import graph_launches
from htagraph.lookup.selecting import under_mask
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption
from htagraph.replay.changes import Change
from htagraph.replay.draft import Draft

__all__ = ["Graphed", "Prefetch", "graphed", "prefetch"]

Bools = npt.NDArray[np.bool_]

_CODE_OF_A_LAUNCH_NS, _LAUNCHING_NS = 100_000, 1_000_000
"""What code between two operators, and a stretch within one, take at most where they only launch
(PyTorch: 5 to 50 us)."""
_REPLAY_NS = 10_000
"""What a graph launch costs where none was recorded (measured on H100: 6 to 15 us)."""
_HANDED_OVER_NS = 2_000_000
"""What a batch of another process costs its thread at most (PyTorch 2.15: 1.4 to 1.8 ms)."""


@dataclass(frozen=True)
class Graphed(Change):
    """The host replays graphs in place of launching work by work."""

    def apply(self, draft: Draft) -> None:
        """Take host time of operators and launches out; the first launch of each step stays.

        What takes long by itself is no work of launching: it stays, but in the loosest reading. So
        does all code between operators, in the tightest.
        """
        dag, replay = draft.dag, draft.replay
        if not (dag.launch >= 0).any():
            raise QueryError(
                "nothing was launched, so there is nothing to replay as a graph.",
                hint="record device work: ProfilerActivity.CUDA.",
            )
        events = dag.events
        meanings = call_meanings(events)
        loads = events.is_host & events.named(events.symbols.searched(DATA_LOADING))
        waits = np.isin(
            meanings,
            (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC),
        )
        gone = events.is_host & ~draft.nested(loads) & ~waits
        rows = replay.rule == Rule.PROGRAM_ORDER
        if draft.assumption is Assumption.RIGID:
            rows &= draft.own_time(gone & (events.kind != EventKind.ANNOTATION))
        else:
            rows &= (replay.owner < 0) | draft.own_time(gone)
            rows &= dag.is_work[replay.node[replay.head] >> 1]
        if draft.assumption is not Assumption.LOOSE:
            is_gap = (replay.owner < 0) | ~draft.own_time(events.kind != EventKind.ANNOTATION)
            rows &= draft.lag_ns <= np.where(is_gap, _CODE_OF_A_LAUNCH_NS, _LAUNCHING_NS)
        draft.clear(rows)
        usual = draft.extra_ns <= dag.calibration.stream_usual_ns
        draft.extra_ns[usual & (replay.kind == EdgeKind.STREAM)] = 0
        first = _first_launches(dag)
        cost = np.flatnonzero(graph_launches(dag))
        cost_ns = int(np.median(events.dur_ns[cost])) if len(cost) else _REPLAY_NS
        at_end = (replay.kind == EdgeKind.THREAD) & first[replay.node[replay.head] >> 1]
        at_end &= replay.node[replay.head] & 1 == 1
        draft.lag_ns[at_end] += cost_ns

    def __str__(self) -> str:
        """Write it."""
        return "graphed()"


def _first_launches(dag: Dag) -> Bools:
    """Whether each event is the first launch of a step."""
    events = dag.events
    calls = distinct(dag.launch[dag.launch >= 0])
    calls = calls[np.argsort(events.ts_ns[calls], kind="stable")]
    step = step_at(find_steps(events), events.ts_ns[calls]) if len(calls) else calls
    _, at = np.unique(step, return_index=True)
    first = np.zeros(len(events), dtype=bool)
    first[calls[at]] = True
    return first


def graphed() -> Graphed:
    """Change: each step is one replay of a graph, as far as it does not wait or load data.

    Operators and launches take no host time. Whether code between operators goes, too, is a part of
    the interval.

    Returns
    -------
    Graphed

    Raises
    ------
    QueryError
        When it is made, if nothing was launched.
    """
    return Graphed()


@dataclass(frozen=True)
class Prefetch(Change):
    """Data is loaded beside the step: while one batch is used, the next is loaded."""

    def apply(self, draft: Draft) -> None:
        """Take loading off its thread; a batch is there as long after the one before as it took."""
        dag = draft.dag
        events = dag.events
        loads = events.is_host & events.named(events.symbols.searched(DATA_LOADING))
        if not loads.any():
            raise QueryError(
                "no host range that loads data was recorded.",
                hint="torch's DataLoader makes them; or name yours data_loading.",
            )
        outer = np.flatnonzero(loads & ~under_mask(dag, loads))
        outer = outer[np.lexsort((events.ts_ns[outer], events.lane[outer]))]
        draft.clear(draft.own_time(draft.nested(loads)))
        same = events.lane[outer][1:] == events.lane[outer][:-1]
        before, after = outer[:-1][same], outer[1:][same]
        # The first batch is waited for; others cost what it takes to be handed over, if anything.
        own_ns = np.zeros(len(events), dtype=np.int64)
        if draft.assumption is Assumption.RIGID:
            own_ns[after] = np.minimum(events.dur_ns[after], _HANDED_OVER_NS)
        first = np.setdiff1d(outer, after)
        own_ns[first] = events.dur_ns[first]
        ends = draft.replay.node[draft.replay.head]
        rows = np.flatnonzero((draft.replay.kind == EdgeKind.THREAD) & np.isin(ends, 2 * outer + 1))
        draft.lag_ns[rows] = own_ns[ends[rows] >> 1]
        draft.add(
            EdgeTable.of(
                Rule.PROGRAM_ORDER,
                2 * before + 1,
                2 * after + 1,
                lag_ns=events.dur_ns[after],
                event=after,
            )
        )

    def __str__(self) -> str:
        """Write it."""
        return "prefetch()"


def prefetch() -> Prefetch:
    """Change: data is loaded beside the step, one batch ahead.

    The first batch of each thread that loads is still waited for.

    Returns
    -------
    Prefetch
    """
    return Prefetch()
