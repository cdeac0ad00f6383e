"""`htagraph diff` and `check`: whether a run keeps its limits, for people, scripts and CI."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from htagraph.cli.main import main
from tests.comparison.profiles import simulated
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

SLOW = {"kernel": "ampere_sgemm_128x64_nn", "by": 1.12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write a run, another of the same program, a slower one, a short one, and a baseline."""
    into = tmp_path_factory.mktemp("gate")
    simulated(1, steps=4).write(into / "base.json.gz")
    simulated(2, steps=4).write(into / "same.json.gz")
    simulated(3, steps=4, **SLOW).write(into / "slow.json.gz")
    simulated(4, steps=2).write(into / "short.json.gz")
    whole = gzip.decompress((into / "same.json.gz").read_bytes())
    (into / "cut.json").write_bytes(whole[: int(0.9 * len(whole))])
    (into / "project").mkdir()
    options = ("--json", into / "baseline.json", "--out", into / "report", "-q")
    with pytest.raises(SystemExit):
        main(["report", *map(str, (into / "base.json.gz", *options))])
    return into


@pytest.fixture
def run(capsys, folder, monkeypatch):
    """Exit code, output and error output of a command, in the folder."""
    monkeypatch.chdir(folder)

    def run_in(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run_in


def test_a_run_that_is_no_slower_than_its_baseline_passes(run):
    """The baseline is the JSON of a report."""
    code, out, _ = run("check", "same.json.gz", "--baseline", "baseline.json", "-q")

    assert code == 0
    assert out.startswith("Passed: no change beyond noise (")
    assert ", limit 5%: 4.38 ms a step is 4.40 ms now." in " ".join(out.split())


def test_a_slower_run_breaks_the_limit(run):
    """Which is said once, with where it comes from: on the terminal and for a pull request."""
    code, out, err = run("check", "slow.json.gz", "--baseline", "baseline.json", "--out", "pr.md")
    text = Path("pr.md").read_text()
    verdict = (
        "Failed: steps are 8.9% slower, limit 5%: 4.38 ms a step is 4.77 ms now; 404 us more in "
        "GPU compute."
    )

    assert code == 3
    assert " ".join(out.split()).startswith(f"{verdict} Where: GPU compute +404 us in ampere_")
    assert "Failed" not in err
    assert [one.count("8.9%") for one in (out, text)] == [1, 1]
    assert text.startswith(f"### htagraph: {verdict}\n\nCritical path per step")
    assert "ampere_sgemm_128x64_nn (each 12% slower)" in text
    assert text.count("<details>") == text.count("</details>") == 5


def test_what_is_not_known_does_not_pass(run):
    """Two steps have no noise: the exit code is that of a question without an answer."""
    code, out, _ = run("check", "short.json.gz", "--baseline", "baseline.json", "-f", "json", "-q")
    document = json.loads(out)

    assert code == 1
    assert document["state"] == "withheld"
    assert document["diff"]["noise_share"] is None
    assert document["limits"][0]["said"] == ("noise is unknown: profile at least 3 typical steps")


def test_limits_by_themselves(run):
    """A limit that is broken counts more than one that is not known."""
    limits = ("--max-step", "4.4ms", "--max-idle", "50%", "--max-exposed", "1%")
    code, out, _ = run("check", "base.json.gz", *limits, "-f", "json", "-q")
    states = {one["limit"]: one["state"] for one in json.loads(out)["limits"]}

    assert code == 3
    assert states == {"max-step": "passed", "max-exposed": "broken", "max-idle": "passed"}


def test_settings_of_a_project_are_used_and_options_win(run, folder, monkeypatch):
    """Those of the nearest pyproject.toml; a baseline is relative to it."""
    (folder / "pyproject.toml").write_text(
        '[tool.htagraph]\nbaseline = "baseline.json"\nfail-above = "5%"\nmax-step = "1ms"\n'
        '[tool.htagraph.peaks."GPU 9000"]\nmemory_tbps = 2.0\n'
    )
    monkeypatch.chdir(folder / "project")
    trace = folder / "same.json.gz"

    assert run("check", trace, "-q")[0] == 3
    monkeypatch.chdir(folder / "project")
    assert run("check", trace, "--max-step", "10ms", "-q")[0] == 0
    (folder / "pyproject.toml").unlink()


@pytest.mark.parametrize(
    ("settings", "args", "said"),
    [
        ('max_stepp = "1ms"', (), "did you mean 'max-step'?"),
        ("nonsense = 1", (), "one of max-step"),
        ("a = " + 5_000 * "[" + 5_000 * "]", (), "pyproject.toml: "),
        ("", (), "no limits"),
        ("", ("--max-step", "120"), "give a number and ns, us, ms or s"),
        ("", ("--max-idle", "15"), "give 5% or 0.05"),
        ("", ("--fail-above", "5%"), "--baseline"),
    ],
)
def test_wrong_usage_ends_with_two(run, folder, settings, args, said):
    """And says what would be right."""
    if settings:
        (folder / "pyproject.toml").write_text(f"[tool.htagraph]\n{settings}\n")
    code, _, err = run("check", "base.json.gz", *args, "-q")
    (folder / "pyproject.toml").unlink(missing_ok=True)

    assert code == 2
    assert said in " ".join(err.replace("│", " ").split())


def test_a_trace_does_not_differ_from_itself(run):
    """Every delta is zero, and the exit code says so."""
    code, out, _ = run("diff", "base.json.gz", "base.json.gz", "-f", "json", "--fail-above", "5%")

    assert code == 0
    assert {row["delta_ns"] for row in json.loads(out)} == {0}


def test_a_regression_fails_and_has_a_page(run, folder):
    """One file that asks for nothing else; deltas of its bars add up."""
    code, out, _ = run(
        "diff", "baseline.json", "slow.json.gz", "--fail-above", "0.05", "--out", "page.html", "-q"
    )
    page = (folder / "page.html").read_text()

    assert code == 3
    assert out.startswith("Steps are 8.9% slower: ")
    assert "(each 12% slower)" in page
    assert not any(text in page for text in ("http://", "https://", "src=", "@import"))


def test_kernels_are_compared_by_the_shapes_of_their_operators(run):
    """A name of another table is refused with those that there are."""
    code, out, _ = run("diff", "base.json.gz", "slow.json.gz", "--what", "kernels", "--by", "shape")
    wrong, _, said = run("diff", "base.json.gz", "slow.json.gz", "--what", "kernels", "--by", "op")

    assert code == 0
    assert out.startswith("Steps are 8.9% slower")
    assert wrong != 0
    assert "shape" in said


def test_jobs_are_compared_by_steps_of_all_ranks(run, tmp_path):
    """Kernels of one rank take longer: so does the job."""
    for name, delay_ns in (("before", 0), ("after", 1_500_000)):
        job = training_job(
            ranks=2, steps=4, layers=3, straggler=1, delay="kernel", delay_ns=delay_ns, seed=5
        )
        simulate_job(job).write(tmp_path / name)
    code, out, _ = run("diff", tmp_path / "before", tmp_path / "after", "--fail-above", "5%", "-q")
    out = " ".join(out.split())

    assert code == 3
    assert out.startswith("Steps take 2.75 times as long: 2.57 ms a step is 7.08 ms now; 4.51 ms")
    assert out.count("2 ranks, 3 compared of 3 steps") == 2
    assert out.count("step 0, the first of the trace") == 2
    assert "GPU compute +4.51 ms in ampere_sgemm_128x64_nn" in out


def test_one_rank_of_two_jobs_is_compared_by_itself(run, tmp_path):
    """Of folders, as everywhere; a stored baseline has the ranks that it was made with."""
    jobs = simulate_job(training_job(ranks=2, steps=4, straggler=1, delay_ns=2_000_000))
    jobs.write(tmp_path / "job")

    code, said, _ = run("diff", tmp_path / "job", tmp_path / "job", "--rank", 1, "-q")
    refused, _, why = run("check", "base.json.gz", "--baseline", "baseline.json", "--rank", 3)

    assert (code, "rank-1" in said or "rank1" in said) == (0, True)
    assert (refused, "rank" in why) == (1, True)


def test_a_damaged_run_is_refused_with_the_reason(run):
    """Its steps are not those of the program: no limit passes, and none is broken."""
    code, out, _ = run("check", "cut.json", "--max-step", "10ms", "--max-idle", "1%")

    assert code == 1
    assert " ".join(out.split()).startswith(
        "Unknown: the recording is damaged. Record it again, or check it as it is: "
        "--accept-damage. The file is cut off (truncated): events of"
    )


def test_a_damaged_run_is_checked_if_told(run, folder):
    """By an option, or by the project."""
    check = ("check", "cut.json", "--max-step", "10ms", "-q")
    assert run(*check)[0] == 1
    assert run(*check, "--accept-damage")[0] == 0

    (folder / "pyproject.toml").write_text("[tool.htagraph]\naccept-damage = true\n")
    code, _, _ = run(*check)
    (folder / "pyproject.toml").unlink()
    assert code == 0


def test_a_damaged_baseline_says_nothing_of_a_run(run, folder):
    """Limits of the run itself are checked."""
    run("report", "cut.json", "--json", "damaged.json", "--no-files", "-q")
    options = ("--baseline", "damaged.json", "--max-step", "1ms", "-f", "json", "-q")
    code, out, _ = run("check", "same.json.gz", *options)
    found = json.loads(out)

    assert code == 3
    assert [one["state"] for one in found["limits"]] == ["broken", "withheld"]
    assert found["damage"][0].startswith("before: The file is cut off (truncated): ")


def test_a_comparison_says_what_is_damaged(run):
    """And of which run; the gate on it refuses, unless told."""
    said = "after: The file is cut off (truncated): events of any time"
    diff = ("diff", "base.json.gz", "cut.json", "--fail-above", "100%")
    code, out, _ = run(*diff, "--out", "damaged.html")
    assert code == 1
    assert said in " ".join(out.split())
    assert said in Path("damaged.html").read_text(encoding="utf-8")

    assert run(*diff, "--accept-damage")[0] == 0
