"""`htagraph mcp`: the tools of coding agents, served over the Model Context Protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli.console import notices
from htagraph.errors import MissingEventsError, TraceNotFoundError


def mcp(
    *,
    root: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Only files below this folder are read.")
    ] = Path(),
) -> None:
    """Serve coding agents over MCP (stdio). Nothing is written."""
    if not root.is_dir():
        raise TraceNotFoundError("no such folder.", path=root, hint="give --root FOLDER.")
    try:
        from htagraph.agents.server import serve  # noqa: PLC0415  deferred: an extra
    except ImportError as exc:
        raise MissingEventsError(
            "htagraph mcp needs mcp.", missing="mcp", hint="pip install 'htagraph[mcp]'."
        ) from exc
    if sys.stdin.isatty():
        notices().print("Waiting for a client on standard input; docs/agents.md sets one up.")
    serve(root)
