"""Peaks of devices that a user gives: in code, or in the pyproject.toml of a project."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.model.devices import DeviceProperties
from htagraph.operators import peaks
from htagraph.operators.peaks import peaks_of
from tests.queries.recorded_shapes import H100, Op, recorded

_Z = DeviceProperties(0, name="NVIDIA Z9000 PCIe", n_sms=900)


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    """Peaks that a test gives are gone after it."""
    monkeypatch.setattr(peaks, "_GIVEN", {})
    peaks._of_project.cache_clear()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A function that writes the peaks of the project around the working directory."""
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")

    def write(text):
        (tmp_path / "pyproject.toml").write_text(text)

    return write


def test_peaks_in_code_are_those_of_devices_with_that_part_in_their_name():
    hg.device_peaks("Z9000", memory_tbps=2, bf16=400)

    assert peaks_of(_Z).bytes_per_s == 2e12
    assert peaks_of(_Z).flops_per_s("bf16") == 400e12


def test_peaks_of_the_project_around_the_working_directory(project):
    project('[tool.htagraph.peaks."Z9000"]\nmemory_tbps = 2\nbf16 = 400\nhost_gbps = 25.5\n')

    assert peaks_of(_Z).flops_per_s("bf16") == 400e12
    assert peaks_of(_Z).host_bytes_per_s == 25.5e9


def test_code_wins_over_the_project_which_wins_over_data_sheets(project):
    project('[tool.htagraph.peaks."H100"]\nmemory_tbps = 3.0\n')
    h100 = DeviceProperties(0, name=H100["name"], n_sms=132)

    assert peaks_of(h100).memory_tbps == 3.0
    hg.device_peaks("H100", memory_tbps=2.5)
    assert peaks_of(h100).memory_tbps == 2.5


def test_a_roofline_is_drawn_against_them(project):
    """402.7 MB at 1 TB/s take 403 of 500 us."""
    project('[tool.htagraph.peaks."H100"]\nmemory_tbps = 1.0\n')
    added = recorded(Op("aten::add", [[8192, 8192], [8192, 8192]], [("add", 500)]))

    assert added.roofline().iloc[0]["roof_share"] == pytest.approx(0.805, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"Z9000" = 3\n', "is no table"),
        ("Z9000.bf61 = 400\nZ9000.memory_tbps = 2\n", "did you mean 'bf16'"),
        ("Z9000.bf16 = 400\n", "needs its memory bandwidth"),
        ('Z9000.memory_tbps = "2"\n', "must be a number >= 0, not '2'"),
        ("Z9000.memory_tbps = inf\n", "must be a number >= 0, not inf"),
    ],
)
def test_wrong_peaks_of_a_project_are_an_error_that_names_its_file(project, text, said):
    project(f"[tool.htagraph.peaks]\n{text}")

    with pytest.raises(QueryError, match=r"pyproject\.toml") as error:
        peaks_of(_Z)
    assert said in f"{error.value} {error.value.hint}"


def test_a_project_file_that_is_no_toml_gives_no_peaks(project):
    """What reads its settings says so; a roofline is no reason to."""
    project("[tool.htagraph.peaks")

    assert peaks_of(_Z) is None
