"""`--help` and `--version`: whole sentences as wide as the terminal, and at once."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

import htagraph as hg
from htagraph.cli.main import HOMES, VERBS


def _started(*args: str, columns: int = 80) -> tuple[list[str], set[str]]:
    """What a command prints, line by line, and the modules that it has loaded."""
    code = (
        "import sys; from htagraph.cli.start import start\n"
        f"sys.argv = {['htagraph', *args]!r}\n"
        "try: start()\n"
        "finally: sys.stderr.write(' '.join(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        text=True,
        env=os.environ | {"COLUMNS": str(columns)},
    )
    return run.stdout.splitlines(), set(run.stderr.split())


def test_help_lists_the_verbs_in_whole_sentences() -> None:
    lines, _ = _started("--help")
    listed = {verb: line for line in lines for verb in VERBS if line.startswith(f"  {verb} ")}

    assert {verb: line.split(maxsplit=1)[1] for verb, line in listed.items()} == VERBS
    assert max(map(len, lines)) <= 80


def test_help_loads_no_verb() -> None:
    _, loaded = _started("--help")

    assert not loaded & {"numpy", "htagraph.cli.report", "htagraph.cli.options"}


def test_the_version_loads_not_even_what_reads_options() -> None:
    said, loaded = _started("--version")

    assert said == [f"htagraph {hg.__version__}"]
    assert not loaded & {"typer", "rich", "numpy"}


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_loads_no_pandas(verb) -> None:
    """Of all libraries, it takes longest to load."""
    _, loaded = _started(verb, "--help")

    assert f"htagraph.cli.{HOMES.get(verb, verb.replace('-', '_'))}" in loaded
    assert "pandas.core" not in loaded


def test_help_is_as_wide_as_the_terminal() -> None:
    narrow, wide = (_started("report", "--help", columns=columns)[0] for columns in (80, 120))

    assert 70 < max(map(len, narrow)) <= 80
    assert 110 < max(map(len, wide)) <= 120


def test_each_verb_is_a_function_of_its_name() -> None:
    names = {verb: verb.replace("-", "_") for verb in VERBS}

    for verb, name in names.items():
        assert callable(getattr(import_module(f"htagraph.cli.{HOMES.get(verb, name)}"), name))
