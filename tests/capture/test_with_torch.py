"""The handler and the profiler with a real PyTorch: one process, and four with gloo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import htagraph as hg

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
]

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("training.py")


def run(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with the package of this tree; messages of torch are left out."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    done.stderr = "\n".join(re.findall(r"^htagraph.*", done.stderr, re.MULTILINE))
    return done


def train(case: str, folder: Path, *world_size: int) -> subprocess.CompletedProcess[str]:
    """Train in processes of their own."""
    return run(PROGRAM, case, folder, *world_size)


def names(folder: Path) -> list[str]:
    """Names of all traces in a folder, hidden files too, without the times."""
    return sorted(
        path.name.split(".")[0] or path.name for path in folder.iterdir() if path.is_file()
    )


def test_two_cycles_two_runs_are_four_captures(tmp_path):
    """All compressed, nothing left over, and no report where none is wanted."""
    for _ in range(2):
        assert train("two", tmp_path).returncode == 0
    found = hg.discover(tmp_path)

    assert names(tmp_path) == 2 * ["rank0-step2"] + 2 * ["rank0-step6"]
    assert found["capture"].tolist() == [1, 2, 3, 4]
    assert found["steps"].tolist() == ["2 to 3", "6 to 7"] * 2
    assert all(path.name.endswith(".pt.trace.json.gz") for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("case", "files"),
    [
        ("once", ["rank0-step2"]),
        ("plain", ["rank0"]),
        ("endless", ["rank0-step2", "rank0-step6"]),
    ],
)
def test_the_verdict_is_printed_after_the_last_cycle(tmp_path, case, files):
    """Or at the end, where the schedule has none; step 10, which had just begun, is no cycle."""
    done = train(case, tmp_path)
    (report,) = tmp_path.glob("report*")

    assert names(tmp_path) == files
    assert done.stdout.count(" of this run: ") == 1
    assert (
        done.stdout.endswith(f"The report: {report / 'summary.md'}\n")
        or (report / "report.html").exists()
    )
    assert report.name.startswith("report." if case == "plain" else f"report{files[-1][5:]}.")


def test_a_training_that_is_interrupted_leaves_its_trace_and_a_report(tmp_path):
    """Ctrl-C in the second recorded step."""
    done = train("interrupted", tmp_path)

    assert done.returncode != 0
    assert "trained" not in done.stdout
    assert " of this " in done.stdout
    assert names(tmp_path) == ["rank0-step2"]


def test_stacks_are_read_where_they_were_recorded(tmp_path):
    """The report names a line of the program."""
    train("stack", tmp_path)

    assert "training.py(" in next(tmp_path.glob("report*/summary.md")).read_text()


def test_four_ranks_are_one_capture_and_the_late_one_is_named(tmp_path):
    """Rank 0 reports on all of them."""
    done = train("once", tmp_path, 4)
    found = hg.discover(tmp_path)

    assert found[["capture", "rank", "world_size"]].to_numpy().tolist() == [
        [1, rank, 4] for rank in range(4)
    ]
    assert "4 ranks · " in done.stdout
    assert "Rank 1 is late: it costs " in done.stdout


def test_a_rank_that_dies_is_missing_in_the_report(tmp_path):
    """It dies in the recorded step; the others stop there."""
    done = train("dies", tmp_path, 4)

    assert hg.discover(tmp_path)["rank"].tolist() == [0, 1, 3]
    assert "no trace from rank 2 within 5 s; the report leaves them out." in done.stderr
    assert "3 ranks · 1 rank missing" in done.stdout


def test_two_cycles_of_four_ranks_are_two_captures(tmp_path):
    """Each with all ranks."""
    train("two", tmp_path, 4)
    found = hg.discover(tmp_path)

    assert found.groupby("capture")["rank"].apply(list).tolist() == 2 * [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("n_steps", "step", "said"),
    [
        (0, 0, "step() was never called, so the whole block is one step."),
        (
            4,
            0,
            "the block ended after 4 steps, within skip=5: the trace has only the very first",
        ),
        (6, 5, "the block ended after 6 steps: the trace has 1 of the 2 steps to record."),
        (9, 5, ""),
    ],
)
def test_a_block_always_leaves_a_trace_and_says_if_it_is_not_what_was_asked(
    tmp_path, n_steps, step, said
):
    """Of steps 5 and 6, or of as many as there were; else of the first; else of all."""
    done = train(f"block-{n_steps}", tmp_path)

    assert names(tmp_path) == [f"rank0-step{step}"]
    assert done.stderr.split("(Ctrl-C to quit)")[0].startswith(
        f"htagraph: {said}" if said else ("htagraph: writing the report", "")
    )
    assert " of this run: " in done.stdout


PLANTED = """
import sys, time, torch, htagraph as hg
from torch.profiler import profile, schedule

def planted():
    end, n = time.perf_counter() + 0.05, 0
    while time.perf_counter() < end:
        n += 1

def hook(gradient):
    time.sleep(0.005)

way, folder = sys.argv[1:]
options = {"off": {"sample_ms": 0.0}, "stack": {"with_stack": True}}.get(way, {})
model = torch.nn.Linear(64, 64)
model.weight.register_hook(hook)
cycle = schedule(wait=1, warmup=1, active=2, repeat=1)
with (
    profile(schedule=cycle, on_trace_ready=hg.handler(folder, report=False))
    if way == "handler"
    else hg.profile(folder, report=False, **options)
) as profiler:
    for step in range(9):
        planted()
        model(torch.randn(16, 64)).sum().backward()
        profiler.step()
"""


@pytest.mark.parametrize("way", ["handler", "profile", "off", "stack"])
def test_the_report_names_functions_without_stacks(tmp_path, way):
    """Sampled in the recorded steps only; with stacks, or switched off, there are no samples."""
    (tmp_path / "run.py").write_text(PLANTED)
    assert run(tmp_path / "run.py", way, tmp_path / "out").returncode == 0
    (file,) = (tmp_path / "out").glob("*.gz")
    trace = hg.load(file)

    if way in ("off", "stack"):
        assert "python_sample" not in set(trace.events["category"]) | trace.skipped.keys()
        assert trace.has_unread_stacks is (way == "stack")
        return
    frames = trace.events[trace.events["category"] == "python_sample"]
    in_planted = frames["dur_ns"][frames["name"].str.endswith("run.py(5): planted")]
    assert in_planted.sum() == pytest.approx(1e8, rel=0.2)  # two steps
    assert frames["name"].str.endswith("run.py(10): hook").any()
    assert trace.metadata["sampler"]["interval_ms"] == 1.0
    unrecorded = trace.metadata.get("unrecorded", {"steps": 0, "step_ns": 0})
    assert unrecorded["steps"] == 1 * (way == "profile")
    assert unrecorded["step_ns"] == pytest.approx(5.5e7 * (way == "profile"), rel=0.2)
    assert re.search(r"run\.py(\(5\):|:7\s+in)\s+planted", str(trace.compile().verdict()))


def test_waits_of_cuda_are_switched_on_where_torch_can(tmp_path):
    """The switch is there; what it does needs a GPU."""
    code = (
        "import torch, htagraph as hg; ready = hg.handler('.'); "
        "print(ready._records_waits, hasattr(torch._C._profiler, '_set_cuda_sync_enabled_val'))"
    )

    assert run("-c", code, cwd=tmp_path).stdout.split() in (["True", "True"], ["False", "False"])


def test_the_program_of_the_documents_runs_as_it_stands(tmp_path):
    """The first one of docs/capture.md."""
    program = re.search(r"```python\n(.*?)```", (ROOT / "docs/capture.md").read_text(), re.DOTALL)
    done = run("-c", program[1], cwd=tmp_path)

    assert done.returncode == 0
    assert " of this run: " in done.stdout


def test_a_profile_keeps_its_run(tmp_path):
    """One row, with the version of PyTorch."""
    assert train("keep", tmp_path).returncode == 0
    [row] = hg.KeptRuns(tmp_path / "kept")

    assert (row.unit, row.n_steps) == ("step", 2)
    assert re.match(r"\d+\.\d+", row.torch)
