"""The server: a desk behind the Model Context Protocol, on standard input and output.

The only door to `mcp`, which is an extra.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

import anyio
from anyio import from_thread, to_thread
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from htagraph import __version__
from htagraph.agents.desk import INSTRUCTIONS, AbandonedError, Desk
from htagraph.agents.files import Root
from htagraph.agents.tools import TOOLS

_REPORTS_EVERY_S = 0.25
"""Seconds between progress reports, chosen: a bar that moves. Pinned by `test_mcp.py`."""


def serve(root: Path) -> None:
    """Answer a client until it closes standard input.

    Parameters
    ----------
    root : Path
        The folder whose files may be read.
    """
    logging.getLogger("mcp").setLevel(logging.WARNING)
    desk = Desk(Root.of(root))
    anyio.run(_serve, desk)
    if desk.is_busy:  # a thread cannot be stopped, and nobody waits for its answer
        for process in multiprocessing.active_children():
            process.terminate()
        sys.stderr.flush()
        os._exit(0)
    desk.loaded.clear()


@dataclass
class _Progress:
    """When a client last got a progress report on a call."""

    start_s: float
    elapsed_s: float = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for another report."""
        elapsed_s = now_s - self.start_s
        if elapsed_s - self.elapsed_s < _REPORTS_EVERY_S:
            return False
        self.elapsed_s = elapsed_s
        return True


async def _serve(desk: Desk) -> None:
    """Answer the requests of one client."""
    tools = [
        types.Tool(
            name=tool.name,
            description=tool.meaning(),
            input_schema=tool.input_schema(),
            annotations=types.ToolAnnotations(
                read_only_hint=True, idempotent_hint=True, open_world_hint=False
            ),
        )
        for tool in TOOLS.values()
    ]

    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        """List the tools."""
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Answer a call in a thread, so that it can be cancelled and the server keeps listening."""
        abandoned = Event()
        reports = _Progress(time.monotonic())

        def report(doing: str) -> None:
            """Report progress now and then, in seconds since the call."""
            if not reports.is_due(time.monotonic()):
                return
            try:
                from_thread.run(context.session.report_progress, reports.elapsed_s, None, doing)
            except Exception:  # noqa: BLE001  the client has gone, or the call was cancelled
                raise AbandonedError from None

        work = partial(desk.answer, params.name, params.arguments or {}, report, abandoned)
        try:
            text, is_error = await to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            abandoned.set()
        content = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, is_error=is_error)

    server = Server(
        "htagraph",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
