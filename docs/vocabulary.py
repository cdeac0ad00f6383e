"""The page of the vocabulary: ``python -m docs.vocabulary`` writes it from the package.

What a kind or rule means stands next to it in the source, where those who change it see it.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from docs.drawings import EDGES
from htagraph.model import kinds, rules
from htagraph.model.kinds import DEVICE_KINDS, HOST_KINDS, EdgeKind, EventKind, Vocabulary
from htagraph.model.rules import Rule

__all__ = ["PAGE", "meanings", "page"]

PAGE = Path(__file__).parent / "concepts" / "vocabulary.md"
_MEMBER = re.compile(r"^    (\w+) = \(?\s*\d+ +#: (.*)$", re.MULTILINE)
_RULE = re.compile(r'^    (\w+) = \d+, EdgeKind[^\n]*\n    """(.*?)"""', re.MULTILINE | re.DOTALL)
_EDGES = "## Edges\n"
"""Where the tables begin; what is above is written by hand."""


def meanings(vocabulary: type[Vocabulary]) -> dict[str, str]:
    """What the source says of each member, by label."""
    source = inspect.getsource(rules if vocabulary is Rule else kinds)
    body = source.partition(f"class {vocabulary.__name__}(")[2].partition("\nclass ")[0]
    found = (_RULE if vocabulary is Rule else _MEMBER).findall(body)
    said = {name: " ".join(text.replace("``", "`").split()) for name, text in found}
    return {member.label: said[member.name] for member in vocabulary}


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _where(kind: EventKind) -> str:
    """Whether events of a kind are in the graph."""
    if kind in HOST_KINDS:
        return "on a host thread"
    return "on a stream" if kind in DEVICE_KINDS else ""


def page() -> str:
    """The page, with new tables."""
    of_edges, of_rules, of_events = (meanings(one) for one in (EdgeKind, Rule, EventKind))
    edges = [
        (
            f"`{kind.name}`",
            f"{of_edges[kind.label]}<br>![{EDGES[kind].title}](../drawings/edge-{kind.label}.svg)",
            ", ".join(rule.label for rule in Rule if rule.kind is kind) or "none",
        )
        for kind in EdgeKind
    ]
    by_kind = sorted(Rule, key=lambda rule: (rule.kind, rule))
    proofs = [
        (rule.label, f"`{rule.kind.name}`", str(rule.evidence), of_rules[rule.label])
        for rule in by_kind
    ]
    events = [(f"`{kind.name}`", of_events[kind.label], _where(kind)) for kind in EventKind]
    return (
        f"{PAGE.read_text().partition(_EDGES)[0]}{_EDGES}\nEach arrow leads from what is waited "
        "for to what waits. Start and end of an event are two nodes, so\nan edge may leave its "
        "start or its end.\n\n"
        + _table(("kind", "the head cannot come before the tail, because …", "rules"), edges)
        + "\n## Rules\n\nA rule is the proof of an edge: what was recorded, what a definition "
        "says, or what order and\ntimes let one infer ([waits that are not recorded]"
        "(inference.md)).\n\n"
        + _table(("rule", "makes", "evidence", "what it says"), proofs)
        + "\n## Events\n\nEvents without a place in the graph are context: questions use them, "
        "no edge joins them.\n\n" + _table(("kind", "what it is", "in the graph"), events)
    )


if __name__ == "__main__":
    PAGE.write_text(page())
