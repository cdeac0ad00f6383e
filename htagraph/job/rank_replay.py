"""RankReplay: a rank's graph and its replays in common time, before any change."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.clocks import Clock
from htagraph.algorithms.retime import DROPPED
from htagraph.graph import TraceGraph
from htagraph.model.dag import Dag
from htagraph.model.window import Window
from htagraph.replay.assumptions import Reading, readings
from htagraph.replay.replay import Replay, replay_of

__all__ = ["RankReplay", "ReplayIn"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RankReplay:
    """A rank of a job, ready to be run again.

    Parameters
    ----------
    dag : Dag
        On the rank's clock.
    readings : tuple of Reading
        In common time, `Assumption.AS_BOUND` first.
    window : Window
        What is asked about, in common time.
    """

    dag: Dag
    readings: tuple[Reading, ...]
    window: Window

    @property
    def replay(self) -> Replay:
        """The run as it was, by the first reading."""
        return self.readings[0].replay


@dataclass(frozen=True)
class ReplayIn:
    """The replay of a rank in common time, as work that can travel to another process.

    Parameters
    ----------
    clock : Clock
        Of the rank.
    """

    clock: Clock

    def __call__(self, graph: TraceGraph) -> RankReplay:
        """Do it on the graph of a rank."""
        replay, clock = replay_of(graph.dag), self.clock
        ts_ns, release_ns = clock.to_common(replay.ts_ns), clock.to_common(replay.release_ns)
        moved = tuple(
            Reading(one.assumption, _moved(one.replay, clock, ts_ns, release_ns))
            for one in readings(graph.dag, replay, is_alone=False)
        )
        own = graph.interval
        start_ns, end_ns = clock.to_common([own.start_ns, own.end_ns]).tolist()
        return RankReplay(graph.dag, moved, Window(start_ns, end_ns, own.name, own.anchor))


def _moved(replay: Replay, clock: Clock, ts_ns: I64, release_ns: I64) -> Replay:
    """A replay in common time: what arrived in time still does, to the nanosecond.

    Weights are differences of moved times. A drift moves them by more or less, but keeps order.
    """
    tail_ns, there = replay.ts_ns[replay.tail], replay.lag_ns != DROPPED
    lag = np.where(there, replay.lag_ns, 0)
    lag_end = clock.to_common(tail_ns + lag)
    extra = clock.to_common(tail_ns + lag + replay.extra_ns) - lag_end
    return replace(
        replay,
        ts_ns=ts_ns,
        release_ns=release_ns,
        lag_ns=np.where(there, lag_end - ts_ns[replay.tail], DROPPED),
        extra_ns=extra,
    )
