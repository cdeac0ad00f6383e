"""Files of other instruments on the command line and on the page: found, or said why not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli.main import main
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """A simulated rank of three steps."""
    out = tmp_path_factory.mktemp("beside") / "rank0.json"
    return simulate(training_rank(steps=3, layers=1)).write(out)


def _log(trace: Path, days: int = 0) -> Path:
    """A log of DCGM, every millisecond from the start of the trace, or some days later."""
    begin = datetime.fromtimestamp(hg.load(trace).events["ts_ns"].min() / 1e9, UTC)
    lines = ["timestamp,gpu,DCGM_FI_PROF_SM_ACTIVE"]
    for n in range(-5, 50):
        when = begin + timedelta(days=days, milliseconds=n)
        lines.append(f"{when.isoformat(timespec='milliseconds')},0,{n % 5 / 5}")
    path = trace.with_name(f"dcgm{days}.csv")
    path.write_text("\n".join(lines))
    return path


def _printed(capsys, *args: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    assert not ended.value.code
    return " ".join(capsys.readouterr().out.split())


def test_info_says_what_was_found_of_each_file(capsys, trace):
    """One log fits, one is of another day."""
    logs = [_log(trace), _log(trace, days=1)]
    printed = _printed(capsys, "info", trace, "--beside", logs[0], "--beside", logs[1])

    assert "Companion files instrument n matched detail dcgm 55" in printed
    assert "not placed: the log begins 86,400 s after the trace ends" in printed


def test_the_report_draws_what_was_found_and_says_what_was_not(capsys, tmp_path, trace):
    """The page has a panel among its folded sections, below the path."""
    logs = [_log(trace), _log(trace, days=1)]
    printed = _printed(
        capsys, "report", trace, "--beside", logs[0], "--beside", logs[1], "--out", tmp_path
    )
    page = (tmp_path / "report.html").read_text()

    assert page.index('id="critical-path-timeline"') < page.index('id="sampled-counters"')
    assert f"{logs[1]} matches nothing in the trace: " in printed
