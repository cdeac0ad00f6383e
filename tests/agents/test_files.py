"""A client reads files of one folder, wherever names and links lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from htagraph.agents.target import Root
from htagraph.errors import QueryError, TraceNotFoundError
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


@pytest.fixture
def outside(tmp_path) -> Path:
    """A trace beside the root."""
    return simulate(training_rank(steps=1)).write(tmp_path / "secret" / "rank0.pt.trace.json.gz")


@pytest.fixture
def root(tmp_path, outside) -> Root:
    """A root with links that lead out of it, as a file and as a folder."""
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "link.json.gz").symlink_to(outside)
    (folder / "folder").symlink_to(outside.parent)
    (folder / "circle").symlink_to(folder / "circle")
    return Root.of(folder)


@pytest.mark.parametrize(
    "name",
    [
        "../secret/rank0.pt.trace.json.gz",
        "link.json.gz",
        "folder/rank0.pt.trace.json.gz",
        "a/../../secret",
        "/etc/passwd",
        "..",
        "a\0b",
    ],
)
def test_what_leads_outside_is_refused(root, name):
    """Also where it does not exist: the answer does not tell."""
    with pytest.raises(QueryError) as error:
        root.existing(name)

    assert "`captures` lists what is there" in str(error.value)


@pytest.mark.parametrize("name", ["nothing.json", "circle", "circle/rank0.json"])
def test_what_is_not_there_says_so(root, name):
    """A link that leads to itself leads nowhere."""
    with pytest.raises(
        (QueryError, TraceNotFoundError), match=r"is no path|no such file or folder"
    ):
        root.existing(name)


def test_links_in_a_folder_that_lead_outside_are_left_out(root):
    """And the answer says how many."""
    simulate(training_rank(steps=1)).write(root.folder / "own" / "rank0.pt.trace.json.gz")

    captures, notes = root.captures(root.folder)

    assert [root.shown(path) for path in captures["path"]] == ["own/rank0.pt.trace.json.gz"]
    assert notes == ["1 link to files outside of the root left out."]


def test_a_folder_of_nothing_else_has_no_captures(root):
    """Nothing outside is named."""
    with pytest.raises(QueryError, match="1 link to files outside of the root left out"):
        root.captures(root.folder)
