"""Every notebook runs from the first cell to the last."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("notebook", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path):
    """In a process and a folder of its own."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    document = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(document, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()

    assert all(cell.get("outputs") is not None for cell in document.cells if cell.cell_type == "code")


@pytest.mark.parametrize("notebook", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_its_answers(notebook):
    """They are made when it runs; what is kept is small and does not change by itself."""
    assert '"outputs": []' in notebook.read_text()
    assert notebook.stat().st_size < 40_000
