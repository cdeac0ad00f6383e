"""An agent that repairs two small repositories over MCP: plan, edit, record, judge.

``python -m tests.agents.repairs FOLDER`` (with PyTorch and mcp) writes the repositories, records
each, and plays the agent: a client with a real server, which edits what the plan names, runs what
it says, and has it judged. It prints the conversations, the first of which is in `docs/agents.md`,
and a table of calls and tokens. A third edit changes nothing, as an agent's may.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import stdio_client

from htagraph.agents.documents import CHARACTERS_PER_TOKEN
from tests.agents.conversation import laid_out, server

TRAIN = '''"""Train a small network."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import htagraph


class Batches(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, number):
        {load}
        return torch.randn(128, 256)


def log_metrics(model):
    weights = [p.detach().view(-1)[:2000] for p in model.parameters()]
    return [sum(part.tolist()) for _ in range({times}) for part in weights]


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Batches(), batch_size=None, num_workers=0)
    with htagraph.profile("runs/before", steps=10, report=False) as profiler:
        for number, batch in enumerate(loader):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            log_metrics(model)
            profiler.step()
'''


def _load_ahead(source: str, plan: dict[str, Any]) -> str:
    """Give the loader the workers that the fix names."""
    found = re.search(r"num_workers=(\d+), persistent_workers=True", plan["fix"])
    assert found is not None
    return source.replace("num_workers=0", found[0])


def _log_seldom(source: str, plan: dict[str, Any]) -> str:
    """Call the function that the place names in every hundredth step only."""
    name = plan["places"][0]["function"]
    call = f"{name}(model)\n            profiler"
    seldom = f"number % 100 or {name}(model)\n            profiler"
    assert call in source
    return source.replace(call, seldom)


def _rename(source: str, plan: dict[str, Any]) -> str:
    """Change nothing that takes time."""
    name = plan["places"][0]["function"]
    return source.replace(name, f"{name}_fast")


@dataclass
class Repository:
    """A program with a planted cause, and the edit that an agent makes of a plan."""

    name: str
    load: str
    times: int
    edit: Callable[[str, dict[str, Any]], str]
    said: list[str] = field(default_factory=list)
    n_calls: int = 0
    n_tokens: int = 0
    outcome: str = ""


REPOSITORIES = (
    Repository("slow loader", "time.sleep(0.04)", 1, _load_ahead),
    Repository("slow logging", "pass", 60, _log_seldom),
    Repository("slow logging, renamed", "pass", 60, _rename),
)


def _run(command: str, folder: Path) -> None:
    """Run a command of the plan with this interpreter."""
    known = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": known}
    subprocess.run(
        shlex.split(command), cwd=folder, check=True, env=environment, capture_output=True
    )


async def repair(repository: Repository, folder: Path) -> None:
    """Play the agent on a repository."""
    program = f"{sys.executable} train.py"
    _run(program, folder)
    async with Client(stdio_client(server(folder))) as client:

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments)
            text = result.content[0].text
            assert not result.is_error, text
            repository.n_calls += 1
            repository.n_tokens += (len(text) + len(json.dumps(arguments))) // CHARACTERS_PER_TOKEN
            shown = laid_out(json.loads(text)).replace(str(folder), "/repository")
            asked = json.dumps(arguments).replace(sys.executable, "python")
            repository.said.append(f"{tool} {asked}\n{shown.replace(sys.executable, 'python')}")
            found: dict[str, Any] = json.loads(text)
            return found

        await call("verdict", path="runs/before", max_tokens=600)
        plan = await call("plan", path="runs/before", command=program)
        source = folder / "train.py"
        before = source.read_text()
        source.write_text(repository.edit(before, plan))
        assert source.read_text() != before
        _run(plan["record"], folder)
        judged = await call("judge", **plan["then"])
        repository.outcome = judged["verdict"]


def main() -> None:
    """Repair all, and print what was said."""
    for repository in REPOSITORIES:
        folder = (Path(sys.argv[1]) / repository.name.replace(" ", "_").replace(",", "")).resolve()
        folder.mkdir(parents=True)
        text = TRAIN.replace("{load}", repository.load)
        (folder / "train.py").write_text(text.replace("{times}", str(repository.times)))
        anyio.run(repair, repository, folder)
        print(f"## {repository.name}\n\n" + "\n\n".join(repository.said) + "\n", flush=True)
    print("| repository | calls | tokens | outcome |\n| --- | --- | --- | --- |")
    for one in REPOSITORIES:
        print(f"| {one.name} | {one.n_calls} | {one.n_tokens:,} | {one.outcome} |")


if __name__ == "__main__":
    main()
