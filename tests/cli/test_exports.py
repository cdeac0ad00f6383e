"""Reports of Nsight Systems on the command line: read through exports, or refused in a line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from htagraph.cli.inputs import readable


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"a format that is not public")
    return path


def test_a_report_is_read_through_the_export_beside_it(report):
    export = report.with_name("run.sqlite")
    export.write_bytes(b"SQLite format 3\x00")

    assert readable(report) == export


def test_an_export_older_than_its_report_is_not_taken_for_it(report):
    export = report.with_name("run.sqlite")
    export.write_bytes(b"SQLite format 3\x00")
    os.utime(export, (0, 0))

    assert readable(report) == report


def test_nobody_in_front_of_the_terminal_is_not_asked(report):
    assert readable(report) == report
