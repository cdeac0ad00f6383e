"""The conversation of docs/agents.md, held by a real client with a real server.

``python -m tests.agents.conversation`` writes the answers into the document.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"
EXCHANGE = re.compile(r'(```json\n(\{"tool".*?)\n```\n\n```json\n).*?(\n```)', re.DOTALL)
"""A call and its answer."""


def write_traces(folder: Path) -> None:
    """The traces that are asked about: a run before and after a repair, and a job."""
    blocking = simulate(training_rank(fault="synchronous_copy", steps=4))
    blocking.write(folder / "before.pt.trace.json")
    simulate(training_rank(steps=4)).write(folder / "after.pt.trace.json")
    job = training_job(ranks=3, straggler=1, delay_ns=9_000_000)
    for rank, run in enumerate(simulate_job(job).ranks):
        run.write(folder / "job" / f"rank{rank}.pt.trace.json")


def server(root: Path) -> StdioServerParameters:
    """A server of this interpreter, for a folder."""
    environment = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    arguments = ["-m", "htagraph.cli.start", "mcp", "--root", str(root)]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment)


def calls(document: str) -> list[dict[str, Any]]:
    """The calls of a document, in order."""
    return [json.loads(call) for _, call, _ in EXCHANGE.findall(document)]


async def hold(root: Path, asked: list[dict[str, Any]]) -> list[str]:
    """Make calls in one session; return what is answered, as the document shows it."""
    answers, place = [], str(root)
    async with Client(stdio_client(server(root))) as client:
        for call in asked:
            result = await client.call_tool(call["tool"], call["arguments"])
            text = result.content[0].text.replace(place, "/path/to/traces")
            answers.append(json.dumps(text) if result.is_error else laid_out(json.loads(text)))
    return answers


def laid_out(answer: dict[str, Any]) -> str:
    """JSON with a line for each part of an answer, row of a part, and fact of a card."""
    lines = []
    for name, value in answer.items():
        key = json.dumps(name)
        if isinstance(value, dict) and "rows" in value:
            rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in value["rows"])
            columns = json.dumps(value["columns"])
            lines.append(f'{key}: {{"columns": {columns}, "rows": [\n    {rows}]}}')
        elif isinstance(value, list):
            items = ",\n    ".join(map(_item, value))
            lines.append(f"{key}: [\n    {items}]")
        else:
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
    return "{" + ",\n ".join(lines) + "}"


def _item(item: object) -> str:
    """A row, a sentence, or a card with a line for each fact."""
    if not isinstance(item, dict):
        return json.dumps(item, ensure_ascii=False)
    facts = (f"{json.dumps(key)}: {json.dumps(item[key], ensure_ascii=False)}" for key in item)
    return "{" + ",\n     ".join(facts) + "}"


def written(document: str, answers: list[str]) -> str:
    """A document with these answers after its calls."""
    rest = iter(answers)
    return EXCHANGE.sub(lambda found: f"{found[1]}{next(rest)}{found[3]}", document)


def main() -> None:
    """Write the answers into the document."""
    text = DOCUMENT.read_text()
    with tempfile.TemporaryDirectory() as folder:
        write_traces(Path(folder))
        answers = anyio.run(hold, Path(folder).resolve(), calls(text))
    DOCUMENT.write_text(written(text, answers))


if __name__ == "__main__":
    main()
