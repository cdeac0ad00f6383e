"""What an installed wheel answers: its demo, a report on one trace, a report on two ranks.

``python answers.py [EXTRA …]`` prints it as JSON, and looks at what each extra is used for. Run by
`.ci/package` and by `tests/hostile/versions.py`, with the Python of another environment, in an
empty folder: what is printed is the same, whatever is installed and whatever cannot be written to.
Numbers have 12 digits, as libraries add up in different orders.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import htagraph as hg

_DEMO = Path("htagraph-demo")
_TRACE = _DEMO / "dataloader.pt.trace.json.gz"
_RANKS = [str(_DEMO / "job" / f"rank{rank}.pt.trace.json.gz") for rank in range(2)]
_HTAGRAPH = str(Path(sys.executable).with_name("htagraph"))
_AS_JSON = ("--json", "-", "--no-files", "--quiet")
_FAULT = "Data loading costs 80% of this run"
"""What is found first in the capture that the demo leads with."""


def said(*arguments: str) -> str:
    """What a command prints; our end where it fails, or complains."""
    run = subprocess.run([_HTAGRAPH, *arguments], capture_output=True, check=False)
    if run.returncode or run.stderr:
        what = run.stderr.decode("utf-8", "replace").strip()
        sys.exit(f"htagraph {' '.join(arguments)}: exit code {run.returncode}\n{what}")
    return run.stdout.decode("utf-8", "replace")


def said_as_json(*arguments: str) -> object:
    """What a command prints as JSON."""
    return json.loads(said(*arguments, *_AS_JSON), parse_float=lambda text: f"{float(text):.12g}")


def main_jobs() -> dict[str, object]:
    """The demo's summaries, and the reports on a trace and on two ranks."""
    assert _FAULT in said("demo", "--quiet")
    answers: dict[str, object] = {
        str(file): file.read_text("utf-8") for file in sorted(_DEMO.glob("*/summary.md"))
    }
    answers["report"] = said_as_json("report", str(_TRACE))
    answers["job"] = said_as_json("report", *_RANKS)
    assert len(answers) == 10
    graph = hg.load(_TRACE).compile()
    assert graph.critical_path().n_segments > 0
    assert "numba" not in sys.modules, "numba compiled what the wheel should bring along"
    return answers


def plot(_: dict[str, object]) -> None:
    """A page, and a figure."""
    from htagraph.reports import plots

    said("report", str(_TRACE), "--out", "page", "--quiet")
    assert Path("page/report.html").stat().st_size > 700_000  # its drawing script is in it
    figure = plots.critical_path_timeline(hg.load(_TRACE).compile().critical_path())
    assert len(figure.data) > 3


def dask(answers: dict[str, object]) -> None:
    """A report by the workers of a cluster."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        address = cluster.scheduler_address
        assert said_as_json("report", *_RANKS, "--dask", address) == answers["job"]


def remote(_: dict[str, object]) -> None:
    """A trace in a store."""
    import fsspec

    fsspec.filesystem("memory").put(str(_TRACE), f"/run/{_TRACE.name}")
    there, here = hg.load(f"memory://run/{_TRACE.name}"), hg.load(_TRACE)
    assert there.events.equals(here.events)
    url = f"file://{_TRACE.resolve()}"
    assert said("path", url, "--quiet") == said("path", str(_TRACE.resolve()), "--quiet")


def parquet(_: dict[str, object]) -> None:
    """A table in a file."""
    import pandas as pd

    asked = ("ask", "kernel_breakdown", str(_TRACE), "--quiet", "--out")
    said(*asked, "table.parquet")
    said(*asked, "table.json")
    columns = ["group", "sum_ns"]
    rows = pd.read_parquet("table.parquet")[columns].to_numpy().tolist()
    assert rows == pd.read_json("table.json")[columns].to_numpy().tolist()


def mcp(_: dict[str, object]) -> None:
    """The tools of coding agents, listed and used."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def visit() -> tuple[list[str], bool]:
        server = StdioServerParameters(command=_HTAGRAPH, args=["mcp", "--root", str(_DEMO)])
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            verdict = await client.call_tool("verdict", {"path": _TRACE.name})
            return [tool.name for tool in tools], verdict.is_error

    names, is_error = asyncio.run(visit())
    assert names[:2] == ["captures", "verdict"]
    assert not is_error


def sql(_: dict[str, object]) -> None:
    """A query, and one that reaches too far."""
    graph = hg.load(_TRACE).compile()
    found = graph.sql("SELECT sum(dur_ns) AS dur_ns FROM segments")
    assert found["dur_ns"].tolist() == [graph.dur_ns]
    try:
        graph.sql(f"FROM read_text('{_TRACE}')")
    except hg.errors.QueryError:
        return
    sys.exit("a query reads files")


EXTRAS = {function.__name__: function for function in (plot, dask, remote, parquet, mcp, sql)}
"""What each extra is used for."""


def main() -> None:
    """Print the answers."""
    answers = main_jobs()
    for extra in sys.argv[1:]:
        EXTRAS[extra](answers)
    print(json.dumps(answers, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
