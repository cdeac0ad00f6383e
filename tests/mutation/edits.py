"""Other text for a node of a source."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Edit:
    """A node of a source, and the text that takes its place."""

    node: ast.expr | ast.stmt
    text: str

    @property
    def line(self) -> int:
        """The line on which the node begins."""
        return self.node.lineno

    def of(self, source: str) -> str:
        """The source with the other text."""
        assert self.node.end_lineno is not None
        assert self.node.end_col_offset is not None
        lines = source.encode().splitlines(keepends=True)  # columns count bytes
        first, last = self.node.lineno - 1, self.node.end_lineno - 1
        before = b"".join(lines[:first]) + lines[first][: self.node.col_offset]
        after = lines[last][self.node.end_col_offset :] + b"".join(lines[last + 1 :])
        return (before + self.text.encode() + after).decode()
