"""Notebooks run from the first cell to the last, and their stored output is up to date."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("plotly")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
FIGURE = "application/vnd.plotly.v1+json"
PICTURE = re.compile(r"!\[(?P<title>.*)\]\((?P<file>.*)\)")


def texts(document):
    """Output, warnings and answer of each code cell; the answers of figures are not stored."""
    told = []
    for cell in document.cells:
        texts = {}
        for output in cell.get("outputs", []):
            if FIGURE not in output.get("data", {}):
                kind = output.get("name", "answer")
                if kind == "stderr" and output["text"].startswith("compiling, once"):
                    continue  # the first run of a checkout on this machine
                texts[kind] = texts.get(kind, "") + (
                    output.get("text") or output["data"]["text/plain"]
                )
        told.append(texts)
    return told


def figure_titles(document):
    """The titles of the figures that were drawn, in order."""
    outputs = (output for cell in document.cells for output in cell.get("outputs", []))
    figures = (output["data"][FIGURE] for output in outputs if FIGURE in output.get("data", {}))
    return [html.unescape(figure["layout"]["title"]["text"]) for figure in figures]


def pictures(document):
    """Title and file of the pictures, in order."""
    found = (PICTURE.search(cell.source) for cell in document.cells if cell.cell_type == "markdown")
    return [(picture["title"], picture["file"]) for picture in found if picture]


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    """The file of a notebook."""
    return request.param


@pytest.fixture(scope="module")
def stored(notebook):
    """The stored notebook."""
    return nbformat.read(notebook, as_version=4)


@pytest.fixture(scope="module")
def run(notebook, tmp_path_factory):
    """The notebook after it ran, in a process and a folder of its own."""
    document = nbformat.read(notebook, as_version=4)
    folder = tmp_path_factory.mktemp(notebook.stem)
    (folder / "traces").symlink_to(notebook.parent / "traces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLOTLY_RENDERER", "plotly_mimetype")
        patch.delenv("COLUMNS", raising=False)  # a worker of xdist has it
        nbclient.NotebookClient(
            document, timeout=300, resources={"metadata": {"path": str(folder)}}
        ).execute()
    return document


def test_the_stored_texts_are_what_the_notebook_says(stored, run):
    """The simulator is seeded, so every text is the same each time."""
    assert texts(run) == texts(stored)


def test_the_pictures_are_of_the_figures_that_it_draws(stored, run):
    """By their titles; no cell draws the pictures of the Perfetto UI."""
    assert figure_titles(run) == [
        title for title, file in pictures(stored) if "perfetto" not in file
    ]


def test_its_pictures_are_there_and_small(notebook, stored):
    """Repositories do not show live figures, so each has a picture below it."""
    sizes = [(notebook.parent / file).stat().st_size for _, file in pictures(stored)]

    assert sizes
    assert max(sizes) < 120_000


def test_what_is_stored_is_small_and_text(notebook, stored):
    """No HTML and no figures, which would change with every version of pandas and plotly."""
    kinds = {
        kind
        for cell in stored.cells
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    }

    assert kinds == {"text/plain"}
    assert notebook.stat().st_size < 60_000
