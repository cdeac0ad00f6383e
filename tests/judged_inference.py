"""Inference judged by the truth of simulated ranks: edges that bind, waits found, time of paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path, path_edges
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound
from htagraph.model.rules import Evidence, Rule
from tests.synth.simulated import SimulatedRank
from tests.synth.truth import Release

INFERRED = tuple(rule for rule in Rule if rule.evidence is Evidence.INFERRED)

_STREAM_WAITS = (
    Rule.RECORD_AND_WAIT_ORDER,
    Rule.ENDED_RIGHT_BEFORE,
    Rule.RECURRING_IN_REPLAYS,
)
UNNAMED: dict[Release, tuple[Rule, ...]] = {
    Release.STREAM_WAIT: _STREAM_WAITS,
    Release.GRAPH: _STREAM_WAITS,
    Release.DEVICE_FULL: (Rule.NO_FREE_SMS,),
    Release.BEFORE_CAPTURE: (Rule.FIRST_DEVICE_WORK,),
    Release.POLL: (Rule.HOST_POLLS,),
    Release.ALLOCATOR: (Rule.ALLOCATOR_WAITS,),
    Release.QUEUE: (Rule.QUEUE_FULL,),
    Release.HANDOFF: (Rule.HANDOFF, Rule.WORKER_CALLED),
    Release.CALL: (Rule.HANDOFF, Rule.WORKER_CALLED),
    Release.REQUEST: (Rule.WAITS_FOR_WORK,),
}
"""Waits that a trace may not name, and the rules that may find them."""

_OF_THREADS = (Release.HANDOFF.value, Release.CALL.value)
_OTHERS = (Release.QUEUE.value, Release.REQUEST.value)
_NO_RULE = -1


@dataclass(frozen=True)
class Judgement:
    """What inference made of one rank."""

    edges: pd.DataFrame
    waits: pd.DataFrame
    time: pd.DataFrame


def judge(rank: SimulatedRank) -> Judgement:
    """Inference on the trace of a rank, and the truth about it."""
    causes = rank.causes.set_index("node")
    plain, dag = (compile_events(rank.events, infer=infer) for infer in (False, True))
    is_right = _is_right(dag, causes)
    bound = dag.binding[dag.binding >= 0]
    inferred = bound[np.isin(dag.edges.rule[bound], np.array(INFERRED, dtype=np.int8))]
    edges = pd.DataFrame(
        {
            "rule": dag.edges.rule[inferred],
            "tail": dag.edges.tail[inferred],
            "head": dag.edges.head[inferred],
            "release": causes["release"].reindex(dag.edges.head[inferred]).to_numpy(),
            "source": causes["source"].reindex(dag.edges.head[inferred]).to_numpy(),
            "is_right": is_right[inferred],
            "is_on_path": np.isin(inferred, path_edges(dag, dag.span)),
        }
    )
    time = pd.DataFrame(
        [
            {"infer": infer, **path_time(of, rank.truth)}
            for infer, of in ((False, plain), (True, dag))
        ]
    )
    return Judgement(edges, _waits(plain, dag, causes, is_right), time)


def _is_right(dag: Dag, causes: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether each edge comes from the work, or the thread, that its head truly waited for."""
    edges = dag.edges
    true = causes.reindex(edges.head)
    release = true["release"].to_numpy()
    source = true["source"].fillna(-1).to_numpy(np.int64)
    lane = dag.events.lane
    same_thread = (source >= 0) & (lane[source] == lane[edges.tail >> 1])
    right = (source >= 0) & (source == edges.tail >> 1)
    right |= np.isin(release, _OF_THREADS) & same_thread
    # A full device is the cause, from whichever thread the edge comes.
    right |= (edges.rule == Rule.NO_FREE_SMS) & (source >= 0) & (source == edges.event)
    first = edges.rule == Rule.FIRST_DEVICE_WORK
    right[first] = release[first] == Release.BEFORE_CAPTURE.value
    outside = edges.rule == Rule.WAITS_FOR_WORK
    right[outside] = release[outside] == Release.REQUEST.value
    # To wait for room and to wait for the end of the same work are two things.
    right &= (release == Release.DEVICE_FULL.value) == (edges.rule == Rule.NO_FREE_SMS)
    return right


def _waits(
    plain: Dag, dag: Dag, causes: pd.DataFrame, is_right: npt.NDArray[np.bool_]
) -> pd.DataFrame:
    """The waits that no record names, each with the rule that found it."""
    unnamed = causes[causes["release"].isin([release.value for release in UNNAMED])]
    counts = unnamed["release"].isin((*_OF_THREADS, *_OTHERS))
    usual_ns = max(dag.calibration.launch_usual_ns, 2 * dag.calibration.stream_usual_ns)
    unnamed = unnamed[counts | (unnamed["late_ns"] > usual_ns)]
    nodes = unnamed.index.to_numpy(np.int64)
    recorded = plain.binding[nodes]
    named = (recorded >= 0) & _is_right(plain, causes)[np.maximum(recorded, 0)]
    nodes, unnamed = nodes[~named], unnamed[~named]
    binding = dag.binding[nodes]
    found = (binding >= 0) & is_right[np.maximum(binding, 0)]
    rule = np.where(found, dag.edges.rule[np.maximum(binding, 0)], _NO_RULE)
    return pd.DataFrame({"release": unnamed["release"].to_numpy(), "rule": rule})


def path_time(dag: Dag, truth: pd.DataFrame) -> dict[str, int]:
    """Time of the whole path, of that with the true bound, and of that without explanation."""
    found = critical_path(dag, dag.span)
    start_ns = max(int(truth["start_ns"].iloc[0]), dag.span.start_ns)
    end_ns = min(int((truth["start_ns"] + truth["dur_ns"]).iloc[-1]), dag.span.end_ns)
    cuts = np.unique(np.concatenate([truth["start_ns"], found["start_ns"], [start_ns, end_ns]]))
    cuts = cuts[(cuts >= start_ns) & (cuts <= end_ns)]
    # By its name a kernel of a program may communicate; to the simulator it is work like any other.
    bounds = [
        frame["bound"]
        .astype(str)
        .replace(Bound.COMMUNICATION.label, Bound.COMPUTE.label)
        .to_numpy()[np.searchsorted(frame["start_ns"], cuts[:-1], side="right") - 1]
        for frame in (truth, found)
    ]
    length_ns = np.diff(cuts)
    return {
        "total_ns": end_ns - start_ns,
        "right_ns": int(length_ns[bounds[0] == bounds[1]].sum()),
        "unexplained_ns": int(length_ns[bounds[1] == Bound.UNKNOWN_WAITS.label].sum()),
    }
