"""What `import htagraph` loads, and what it does not."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import htagraph as hg
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

HEAVY = (
    "pydot",
    "perfetto",
    "plotly",
    "dask",
    "distributed",
    "fsspec",
    "numba",
    "google.protobuf",
    "rich",
    "typer",
    "pyarrow",
)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("module", "allowed"),
    [("htagraph", ()), ("htagraph.cli.main", ("rich", "typer"))],
    ids=["package", "command line"],
)
def test_importing_loads_nothing_that_few_need(module, allowed):
    """Each is imported by the function that needs it, when it does."""
    code = (
        "import pandas, sys, json; before = set(sys.modules); "
        f"import {module}; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    )

    assert [name for name in HEAVY if name in loaded and name not in allowed] == []


def test_importing_loads_neither_simulator_nor_figures():
    """`hg.synth`, `hg.plots` and `hg.write_page` load them."""
    code = "import htagraph, sys; print([name for name in sys.modules if name.startswith({})])"
    few = "('htagraph.synth', 'htagraph.reports.plots', 'htagraph.reports.page')"

    run = subprocess.run([sys.executable, "-c", code.format(few)], capture_output=True, check=True)
    assert run.stdout.strip() == b"[]"


def _all_but(room: str, *used: str) -> list[str]:
    """The modules of a room but those that even the commonest verbs use."""
    files = (Path(hg.__file__).parent / room).glob("[!_]*.py")
    return [f"htagraph.{room}.{file.stem}" for file in files if file.stem not in used]


NOT_FOR_A_VERDICT = (
    *("numba", "plotly", "rustworkx", "perfetto", "google.protobuf"),
    *("sqlite3", "fsspec", "distributed", "mcp", "torch", "duckdb"),
    *("htagraph.synth", "htagraph.capture", "htagraph.agents", "htagraph.comparison"),
    *(*_all_but("job", "opened"), "htagraph.reports.plots"),
    *("htagraph.reports.page", "htagraph.readers.nsys.reader"),
    *("htagraph.readers.perfetto.reader", "htagraph.readers.beside"),
    *("htagraph.readers.graph_file", "htagraph.writers.pftrace", "htagraph.writers.dot"),
    *("htagraph.writers.chrome_json", "htagraph.arrays.lowering"),
    "multiprocessing",
)
"""What answers other questions, or reads and writes other files. pydantic is typer's own."""
NOT_FOR_A_PATH = (
    *NOT_FOR_A_VERDICT,
    *("pandas.core", "pyarrow", "htagraph.replay", *_all_but("findings", "path")),
    *_all_but("queries", "questions", "synonyms"),
    *("htagraph.explain.attributed_time", "htagraph.reports.summary"),
)
"""What only a verdict needs."""


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("options", "answer", "needless"),
    [
        (["path"], "Critical path of this run: ", NOT_FOR_A_PATH),
        (["report", "--no-files"], "rank0", NOT_FOR_A_VERDICT),
    ],
    ids=["path", "verdict"],
)
def test_a_verb_loads_nothing_that_it_does_not_use(options, answer, needless, tmp_path):
    """The commonest verb starts at once: not even pandas is loaded for it."""
    trace = simulate(training_rank()).write(tmp_path / "rank0.pt.trace.json.gz")
    read = hg.load(trace)
    graph = read.compile()
    graph.critical_path().breakdown(by="bound")
    assert hg.Summary(read, graph).verdict.findings  # now its code is kept
    code = (
        "import sys; from htagraph.cli.start import start\n"
        f"sys.argv = ['htagraph', *{options!r}, {str(trace)!r}, '--quiet']\n"
        "try: start()\n"
        "finally: print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    *said, loaded = run.stdout.splitlines()

    assert said[0].startswith(answer)
    few = tuple(f"{name}." for name in needless)
    assert [name for name in loaded.split() if f"{name}.".startswith(few)] == []


def test_importing_does_not_load_what_draws_rustworkx_graphs():
    """`rustworkx.visualization` needs matplotlib or Graphviz."""
    code = (
        "import htagraph, sys; "
        "print([name for name in sys.modules if name.startswith('rustworkx.visualization')])"
    )

    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip()
        == b"[]"
    )


def test_every_test_module_can_be_imported() -> None:
    """Pytest skips a module whose doctests it cannot import, and with it all of its tests."""
    tests = Path(__file__).parents[1]
    missing = [
        f"{file.relative_to(tests)}: from {node.module} import {alias.name}"
        for file in sorted(tests.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("htagraph")
        for alias in node.names
        if not _is_there(str(node.module), alias.name)
    ]

    assert missing == []


def _is_there(module: str, name: str) -> bool:
    """Whether a module has a name, or a submodule of that name."""
    return (
        hasattr(importlib.import_module(module), name)
        or importlib.util.find_spec(f"{module}.{name}") is not None
    )
