"""Traces in a store: opened by URL through fsspec, as if they lay on a disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pandas as pd
import pytest

import htagraph as hg
from htagraph.errors import (
    IncompleteTraceWarning,
    MissingEventsError,
    TraceError,
    TraceNotFoundError,
)
from htagraph.readers.storage import files_matching, files_within
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of three ranks."""
    path = tmp_path_factory.mktemp("job")
    simulate_job(training_job(ranks=3, steps=2, layers=1, straggler=1)).write(path)
    return path


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """The same in a store in memory."""
    store, root = fsspec.filesystem("memory"), f"/{uuid4()}/job"
    store.put(str(folder), root, recursive=True)
    yield f"memory:/{root}"
    store.rm(root, recursive=True)


def test_a_trace_is_read_by_its_url(folder: Path, url: str) -> None:
    """Plain or packed, its rank by its name; args are read again from there."""
    name = "rank1.pt.trace.json.gz"
    there, here = hg.load(f"{url}/{name}"), hg.load(folder / name)

    pd.testing.assert_frame_equal(there.events, here.events)
    assert (there.rank, there.args([5])) == (1, here.args([5]))


@pytest.mark.some(1)
@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_a_job_is_a_folder_a_glob_or_a_list_of_urls(folder: Path, url: str, scheme: str) -> None:
    """All three have the path of the files on disk."""
    where = url if scheme == "memory" else f"file://{folder}"
    listed = [f"{where}/rank{rank}.pt.trace.json.gz" for rank in range(3)]
    found = [hg.load_job(one) for one in (where, f"{where}/rank*.json.gz", listed)]

    expected = hg.load_job(folder).critical_path().segments
    assert [job.ranks for job in found] == [(0, 1, 2)] * 3
    for job in found:
        pd.testing.assert_frame_equal(job.critical_path().segments, expected)


def test_subfolders_are_searched(folder: Path, url: str) -> None:
    """And patterns go through them."""
    above = url.removesuffix("/job")
    names = sorted(path.name for path in folder.iterdir())

    assert [path.name for path in files_within(Path(above))] == names
    assert [path.name for path in files_matching(f"{above}/**/*.gz")] == names


def test_a_file_that_vanishes_costs_one_rank(url: str) -> None:
    """It was there when ranks were looked for; the others answer, and its error has no stack."""
    listed = [f"{url}/rank{rank}.pt.trace.json.gz" for rank in (0, 1, 7)]
    with pytest.warns(IncompleteTraceWarning, match="1 file of 3 could not be used"):
        job = hg.load_job(listed, on_error="skip")

    assert job.ranks == (0, 1)
    assert job.failures["error"].tolist() == [
        f"{listed[2]}: no such file or folder. Hint: check the URL."
    ]


def test_what_is_not_there_is_said_with_its_url(url: str) -> None:
    """A file, a folder; and an unknown scheme."""
    for call in (hg.load, hg.load_job):
        with pytest.raises(TraceNotFoundError, match=f"{url}/nothing: no such file or folder"):
            call(f"{url}/nothing")
    with pytest.raises(TraceError, match=r"nowhere://run: cannot be read: .*nowhere"):
        hg.load("nowhere://run")


def test_without_fsspec_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingEventsError, match=r"pip install 'htagraph\[remote\]'"):
        hg.load("s3://bucket/rank0.json")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_a_glob_meets_a_folder_once_whatever_links_lead_to_it(tmp_path: Path) -> None:
    """Two links that lead back made paths without end."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    for name in "xy":
        (folder / name).symlink_to("..")
    (folder / "rank0.json").touch()

    assert files_matching(tmp_path / "**" / "*.json") == [folder / "rank0.json"]
    assert files_matching(tmp_path / "a" / "**") == [folder / "rank0.json"]
