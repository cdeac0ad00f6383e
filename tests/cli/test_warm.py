"""`htagraph warm`: nothing is left to compile."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from htagraph.arrays.passes import PASSES
from htagraph.cli.main import main
from tests.hostile.confined import PACKAGE


@pytest.mark.slow
def test_every_compiled_function_is_compiled(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["warm", "--quiet"])
    for file in PACKAGE.rglob("*.py"):
        if re.search(r"^@(compiled|entry)$|= compiled\(", file.read_text(), re.MULTILINE):
            import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts))

    assert not ended.value.code
    assert {name for name, forms in PASSES.items() if not forms and "htagraph" in name} == set()
    assert re.fullmatch(
        r"\d+ functions ready after [\d.]+ s, kept in \S+\s", capsys.readouterr().out
    )
