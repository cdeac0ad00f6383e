"""What the graph is made of: kinds of edges with their rules, kinds of events, and their time."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.explain.critical_path import path_segments
from htagraph.explain.segments import segment_labels
from htagraph.lookup.edges import edges_in
from htagraph.lookup.selecting import events_in
from htagraph.model.answers import KINDS
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Rule
from htagraph.model.window import Window

NO_EVENT = "(no event)"
"""Kind of the time of a path in which no event ran."""


def kinds(dag: Dag, window: Window, *, of: Literal["edges", "events"] = "edges") -> pd.DataFrame:
    """Kinds of edges or events of a window: how many, and their time on the critical path.

    Parameters
    ----------
    of : {"edges", "events"}

    Returns
    -------
    DataFrame, schema `answers.KINDS`
        Most time on the path first. All times add up to the window.
    """
    path = path_segments(dag, [window])
    if of == "events":
        labels = [*EventKind.labels(), NO_EVENT]
        own = dag.events.kind[events_in(dag, window)]
        on_path = gather(dag.events.kind, path.event, len(EventKind))
        return _frame(own, on_path, path.dur_ns, [(label, "", "") for label in labels])
    rows = edges_in(dag, window)
    kind, _ = segment_labels(dag, path, "kind")
    return _frame(
        dag.edges.kind[rows].astype(np.int64) * len(Rule) + dag.edges.rule[rows],
        kind.astype(np.int64) * len(Rule) + path.rule(dag),
        path.dur_ns,
        [(kind.label, rule.label, str(rule.evidence)) for kind in EdgeKind for rule in Rule],
    )


def _frame(
    own: npt.NDArray[np.integer[Any]],
    on_path: npt.NDArray[np.integer[Any]],
    dur_ns: npt.NDArray[np.int64],
    labels: list[tuple[str, str, str]],
) -> pd.DataFrame:
    """The answer from codes of things and of segments, and what each code is called."""
    n = np.bincount(own, minlength=len(labels))
    path_ns = sum_by_code(on_path, dur_ns, len(labels))
    found = np.flatnonzero((n > 0) | (path_ns > 0))
    found = found[np.lexsort((found, -n[found], -path_ns[found]))]
    kind, rule, evidence = ([labels[code][at] for code in found.tolist()] for at in range(3))
    return KINDS.frame(
        {
            "kind": kind,
            "rule": rule,
            "evidence": evidence,
            "n": n[found],
            "path_ns": path_ns[found],
            "path_share": path_ns[found] / max(int(dur_ns.sum()), 1),
        }
    )
