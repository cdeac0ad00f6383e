"""Read edges off a compiled drawing as a person would."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind

Arrow = tuple[str, str, int]


def _node(dag: Dag, node: int) -> str:
    return f"{dag.events.symbols.texts[dag.events.name[node >> 1]]}{'>' if node & 1 else '<'}"


@pytest.fixture
def arrows() -> Callable[[Dag, str], list[Arrow]]:
    """List edges of a kind as (tail, head, lag in us); ``a<`` is the start of a, ``a>`` its end."""

    def listed(dag: Dag, kind: str) -> list[Arrow]:
        rows = dag.edges.take(dag.edges.kind == EdgeKind.parse(kind))
        return sorted(
            (_node(dag, tail), _node(dag, head), lag // 1000)
            for tail, head, lag in zip(
                rows.tail.tolist(), rows.head.tolist(), rows.lag_ns.tolist(), strict=True
            )
        )

    return listed


@pytest.fixture
def rules() -> Callable[[Dag, str], Mapping[str, str]]:
    """Map the head of each edge of a kind to its rule."""

    def listed(dag: Dag, kind: str) -> Mapping[str, str]:
        rows = dag.edges.take(dag.edges.kind == EdgeKind.parse(kind))
        return {
            _node(dag, head): str(rule)
            for head, rule in zip(rows.head.tolist(), rows.rule_names, strict=True)
        }

    return listed
