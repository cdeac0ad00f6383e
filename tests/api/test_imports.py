"""What `import htagraph` loads, and what it does not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "pydot",
    "perfetto",
    "plotly",
    "dask",
    "distributed",
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
