"""What `import htagraph` loads, and what it does not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import htagraph as hg
from htagraph.synth import simulate, training_rank

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


def test_a_path_needs_neither_compiler_nor_job_nor_simulator_nor_figures(tmp_path):
    """The commonest verb starts at once: what it does not use is not loaded for it."""
    trace = simulate(training_rank()).write(tmp_path / "rank0.pt.trace.json.gz")
    hg.load(trace).compile().critical_path().breakdown(by="bound")  # now its code is kept
    code = (
        "import sys; from htagraph.cli.main import main\n"
        f"try: main(['path', {str(trace)!r}, '--quiet'])\n"
        "finally: print([name for name in sys.modules if name.startswith({})])"
    )
    needless = ("numba", "plotly", "htagraph.job.", "htagraph.synth", "htagraph.agents")
    needless += ("htagraph.comparison", "htagraph.reports.plots", "htagraph.reports.page")

    run = subprocess.run(
        [sys.executable, "-c", code.format(needless)], capture_output=True, check=False, text=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


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
