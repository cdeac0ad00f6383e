"""A file is there whole, or not at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from htagraph.errors import OutputError
from htagraph.writers.output_file import output_file


def test_a_file_that_fails_halfway_leaves_the_old_one(tmp_path: Path) -> None:
    """What was there before stays, and nothing else is left in the folder."""
    out = tmp_path / "x.dot"
    out.write_text("old")
    with pytest.raises(TypeError), output_file(out) as file:
        file.writelines([b"new", "no bytes"])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.dot", "old")]


def test_a_name_that_ends_in_gz_is_compressed(tmp_path: Path) -> None:
    """Equal content gives equal bytes: there is no time of writing in the file."""
    for name in ("a.gz", "b.gz"):
        with output_file(tmp_path / name) as file:
            file.write(b"content" * 100)
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"content" * 100
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error says which file, and what to do."""
    with pytest.raises(
        OutputError, match=r"absent.x\.dot: the folder does not exist. Hint: mkdir -p"
    ):
        output_file(tmp_path / "absent" / "x.dot").__enter__()


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    """A folder's name is refused before anything is written."""
    with pytest.raises(OutputError, match="it is a folder"):
        output_file(tmp_path).__enter__()


def test_a_disk_error_is_an_output_error(tmp_path: Path) -> None:
    """The name of the temporary file is too long for the file system."""
    with pytest.raises(OutputError, match="cannot be written: File name too long"):
        output_file(tmp_path / ("x" * 250)).__enter__()
