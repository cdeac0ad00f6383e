"""Inferred dependencies: by which rule, and on what evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.explain.critical_path import path_segments
from htagraph.explain.segments import Segments
from htagraph.lookup.edges import edges_in
from htagraph.model.answers import INFERENCES
from htagraph.model.dag import Dag
from htagraph.model.inference import Support
from htagraph.model.kinds import EdgeKind
from htagraph.model.rules import Evidence, Rule
from htagraph.model.schema import categorical
from htagraph.model.window import Window


def inferences(dag: Dag, window: Window, *, by: Literal["rule", "pair"] = "rule") -> pd.DataFrame:
    """Inferred edges by rule with their time on the critical path, or the evidence by pair.

    Parameters
    ----------
    by : {"rule", "pair"}
        One row for each rule with edges in the window, or for each pair of places that was learned
        from the whole trace.

    Returns
    -------
    DataFrame, schema `answers.INFERENCES`
        Most time on the path first; pairs by rule, most matched first.
    """
    if by == "pair":
        ordered = sorted(dag.support, key=_place)
        return _frame(
            [pair.rule for pair in ordered],
            [[pair] for pair in ordered],
            source=[pair.source for pair in ordered],
            target=[pair.target for pair in ordered],
            distance_ns=[pair.distance_ns for pair in ordered],
            spread_ns=[pair.spread_ns for pair in ordered],
        )
    return inferences_of(dag, window, path_segments(dag, [window]))


def inferences_of(dag: Dag, window: Window, path: Segments) -> pd.DataFrame:
    """Inferred edges by rule, given the window's critical path."""
    n_edges = np.bincount(dag.edges.rule[edges_in(dag, window)], minlength=len(Rule)).tolist()
    path_ns = sum_by_code(path.rule(dag), path.dur_ns, len(Rule)).tolist()
    rules = [rule for rule in Rule if rule.evidence is Evidence.INFERRED and n_edges[rule]]
    rules.sort(key=lambda rule: (-path_ns[rule], -n_edges[rule], rule))
    on_path = [path_ns[rule] for rule in rules]
    return _frame(
        rules,
        [[pair for pair in dag.support if pair.rule is rule] for rule in rules],
        n_edges=[n_edges[rule] for rule in rules],
        path_ns=on_path,
        path_share=[dur_ns / max(window.dur_ns, 1) for dur_ns in on_path],
    )


def _place(pair: Support) -> tuple[object, ...]:
    """Sort key of a pair: most matches first."""
    return pair.rule, -pair.n_matched, pair.n_all, pair.source, pair.target, pair.distance_ns


def _frame(
    rules: Sequence[Rule], support: Sequence[Sequence[Support]], **known: Iterable[object]
) -> pd.DataFrame:
    """Rows of the answer, from rules, their evidence, and other known columns."""
    n = len(rules)
    unknown = {name: [0] * n for name in ("n_edges", "path_ns", "distance_ns", "spread_ns")}
    return INFERENCES.frame(
        {
            **unknown,
            "path_share": [np.nan] * n,
            "source": [""] * n,
            "target": [""] * n,
            **known,
            "rule": categorical(np.array(rules, dtype=np.int64), Rule.labels()),
            "kind": categorical(np.array([r.kind for r in rules], np.int64), EdgeKind.labels()),
            "n_pairs": [len(pairs) for pairs in support],
            "n_matched": [sum(pair.n_matched for pair in pairs) for pairs in support],
            "n_all": [sum(pair.n_all for pair in pairs) for pairs in support],
            "chance": [max((pair.chance for pair in pairs), default=np.nan) for pairs in support],
        }
    )
