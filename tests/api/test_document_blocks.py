"""Every block of code in a document runs, and prints what the document says it prints."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from docs.blocks import WIDTH, blocks, printed, write_captures
from docs.drawings import DRAWINGS, FOLDER, LAYERS
from tests.api.test_documents import OF_TODAY, ROOT

PAGES = {path.relative_to(ROOT).as_posix(): blocks(path.read_text()) for path in OF_TODAY}


@pytest.fixture(scope="module")
def captures(tmp_path_factory) -> Path:
    """Folder of the traces that documents name."""
    folder = tmp_path_factory.mktemp("captures")
    write_captures(folder)
    return folder


def _case(page: str) -> object:
    """A page to run: those but README take a minute together."""
    return pytest.param(page, marks=() if page == "README.md" else pytest.mark.slow)


@pytest.mark.parametrize("page", [_case(name) for name, page in PAGES.items() if page])
def test_every_block_prints_what_its_page_says(page, captures, tmp_path, monkeypatch):
    """Where this fails because an answer has changed: ``python -m docs.blocks PAGE`` writes it."""
    shutil.copytree(captures, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", WIDTH)

    for block, output in printed(PAGES[page]):
        assert block.shown is None or output == block.shown, block.body


def test_the_drawings_are_those_of_the_script():
    """``python -m docs.drawings`` writes them."""
    stored = {file.stem: file.read_text() for file in FOLDER.glob("*.svg")}

    assert stored == {name: drawing.svg() for name, drawing in DRAWINGS.items()}


def test_the_picture_of_the_layers_is_the_contract():
    """Row by row, from left to right, as `lint-imports` has them; neighbours may share a floor."""
    [contract] = [
        one
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
            "contracts"
        ]
        if one["type"] == "layers"
    ]
    floors = [room.strip() for floor in contract["layers"] for room in floor.split("|")]

    assert [room for row in LAYERS.values() for room in row] == floors


def test_navigation_lists_every_page():
    """A page that the list of documents lacks would not be found."""
    listed = (ROOT / "docs" / "README.md").read_text()
    pages = [name for name in PAGES if name.startswith("docs/") and name != "docs/README.md"]

    assert [name for name in pages if f"]({name.removeprefix('docs/')})" not in listed] == []
