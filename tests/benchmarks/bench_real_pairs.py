"""Predicted steps against measured ones: real captures with a planted cause, and without it.

``python -m tests.benchmarks.bench_real_pairs``: captures of one process in ``tests/data/captures``
are compared with its ``baseline``. `bench_intervals` has runs before and after a repair.

Each capture is asked three times. *Named*: without what was planted, by its name. *Blind, cause*:
with the repair of the first finding. *Blind, place*: without the first place of its evidence. A row
has the step as it was, as it is predicted and as it was measured without the cause (medians, and
the range of the measured steps), all in ms. Where the script measured the cause itself, ``own`` is
the step less that time: what a prediction can know of its own run.

Runs of one program differ, and no prediction from one run knows by how much: a row is inside where
the prediction meets the range of the measured steps.

Then the jobs: the sleep of one rank is taken away, by its place and by ``equalise``. A step is as
long as its longest rank.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import htagraph as hg
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.kinds import Cause
from htagraph.queries.cost import trials_on
from htagraph.replay.changes import Change
from htagraph.replay.predictions import Candidate
from htagraph.replay.rehearsal import Rehearsal
from tests.real_traces import CAPTURES

Named = Callable[[hg.TraceGraph], list[Change]]
_LOADERS = "enumerate(DataLoader)*"


class Planted(NamedTuple):
    """A planted cause: what is asked about it, and what it is compared with."""

    named: Named
    key: str = ""
    against: str = "pair"


def _remove(*names: str) -> Named:
    """Without events, or Python frames, of some names."""
    return lambda _: [hg.remove(name) for name in names]


def _code(place: str) -> Named:
    """Without host code of a place."""
    return lambda _: [hg.remove(hg.code(place))]


def _saved(graph: hg.TraceGraph) -> list[Change]:
    """Without the large tensor that is made to be saved, nor the code behind it."""
    large = graph.select(name="aten::randn", where="dur_ns > 10_000_000")
    return [hg.remove(large), hg.remove(hg.code("after aten::randn"))]


def _tiny(graph: hg.TraceGraph) -> list[Change]:
    """Without additions that nothing encloses, nor the code behind each."""
    return [hg.remove("aten::add"), hg.remove(hg.code("after aten::add"))]


_ZERO_GRAD = "after Optimizer.zero_grad*"
_OF_SHARED = {
    "backwardhook_stack": Planted(_remove("*hook"), "hook_ms"),
    "bgbusy_allthreads": Planted(lambda _: []),
    "checkpoint": Planted(_saved, against="self"),
    "customfn": Planted(_remove("SlowBackBackward"), "customback_ms"),
    "gc": Planted(_code(_ZERO_GRAD), "gc_ms"),
    "gcauto_gcinfo": Planted(_code(_ZERO_GRAD), "alloc+gc_ms"),
    "generator": Planted(_code("before aten::randn"), "generator_ms"),
    "json_stack": Planted(_remove("*parse_features"), "json_ms"),
    "loader0": Planted(_remove(_LOADERS), "next_ms"),
    "loader2": Planted(_remove(_LOADERS), "next_ms"),
    "lock_stack": Planted(_code("*after line 184"), "lock_ms"),
    "maskindex2": Planted(_remove("aten::nonzero", "aten::rand", "aten::gt"), "nonzero_ms"),
    "optimizer": Planted(_remove("Optimizer.*"), "optimizer_ms", against="none"),
    "recompile": Planted(_remove("*dynamo_timed*"), against="self"),
    "sleep": Planted(_code(_ZERO_GRAD), "sleep_ms"),
    "sleep_stack": Planted(_remove("<built-in function sleep>"), "sleep_ms"),
    "smallops": Planted(_tiny, "smallops_ms"),
}


class Case(NamedTuple):
    """A capture, and what was measured without its cause."""

    name: str
    file: Path
    planted: Planted
    measured_ms: list[float]
    own_ms: float = 0.0


def cases(folder: Path) -> Iterator[Case]:
    """Yield the captures of a folder that have a counterpart."""
    baseline = folder / "single" / "baseline.pt.trace.json.gz"
    measured = _steps(_graph(baseline))
    for name, planted in _OF_SHARED.items():
        file = folder / "single" / f"{name}.pt.trace.json.gz"
        truth = json.loads((folder / "single" / f"{name}.truth.json").read_text())
        mean = truth["mean_per_recorded_step"]
        own_ms = mean["step_ms"] - mean[planted.key] if planted.key else 0.0
        yield Case(name, file, planted, measured if planted.against == "pair" else [], own_ms)


def _graph(file: Path) -> hg.TraceGraph:
    return hg.load(file, stacks=True).compile()


def _steps(graph: hg.TraceGraph) -> list[float]:
    """Lengths of the steps, in ms."""
    return [ns / 1e6 for ns in graph.step_times()["dur_ns"].tolist()]


def asked(graph: hg.TraceGraph, named: Named) -> Iterator[tuple[str, Sequence[Change]]]:
    """Yield the ways to ask, with the changes of each."""
    yield "named", named(graph)
    path = graph.critical_path()
    first = find_bounds(path).findings[0]
    trials = trials_on(graph.dag, graph.interval, path.coded, path.attributed)
    rehearsal = trials.rehearsal
    repairs = [one for one in trials.of_causes() if one.cause == first.cause]
    yield f"blind, cause: {first.cause}", _best(rehearsal, repairs).changes
    code = [one for one in trials.of_parts() if one.kind == "Python code"]
    place = first.evidence[0]
    if first.cause == Cause.HOST_CODE and code:
        yield "blind, place", _best(rehearsal, code).changes
    else:
        named_place = hg.code(place.frame) if place.frame else place.name
        yield "blind, place", [hg.remove(named_place)]


def _best(rehearsal: Rehearsal, of: Sequence[Candidate]) -> Candidate:
    """The largest saving; a last resort only if there is nothing else."""
    tried = [one for one in of if not one.is_last_resort] or of
    return max(tried, key=lambda one: rehearsal.saved_ns(one.changes))


class Predicted(NamedTuple):
    """Steps as they were and as they are predicted, in ms: the expected, and the ends."""

    before_ms: list[float]
    low_ms: list[float]
    expected_ms: list[float]
    high_ms: list[float]


def predicted(graph: hg.TraceGraph, changes: Sequence[Change], *, longest: bool) -> Predicted:
    """Predict each step, or the longest one."""
    steps = graph.step_times().sort_values("dur_ns", kind="stable")["name"].tolist()
    found = Predicted([], [], [], [])
    for name in steps[-1:] if longest else steps:
        step = graph.window(name)
        saving = Rehearsal(step.dag, step.interval).saving(changes)
        found.before_ms.append(step.dur_ns / 1e6)
        for times, saved_ns in (
            (found.low_ms, saving.high_ns),
            (found.expected_ms, saving.expected_ns),
            (found.high_ms, saving.low_ns),
        ):
            times.append((step.dur_ns - saved_ns) / 1e6)
    return found


class Judged(NamedTuple):
    """A prediction and the measured time, in ms."""

    case: Case
    asked: str
    change: str
    steps: Predicted
    measured_ms: list[float]
    spread: float

    @property
    def before(self) -> float:
        """The recorded step."""
        return statistics.median(self.steps.before_ms)

    @property
    def expected(self) -> float:
        """The predicted step."""
        return statistics.median(self.steps.expected_ms)

    @property
    def is_inside(self) -> bool:
        """Whether the predicted interval and the measured range have something in common."""
        low, high = (statistics.median(ends) for ends in (self.steps.low_ms, self.steps.high_ms))
        return min(self.measured_ms) <= high and low <= max(self.measured_ms)

    @property
    def off_ms(self) -> float:
        """By how much the step is predicted too long."""
        return self.expected - statistics.median(self.measured_ms)

    @property
    def of_saving(self) -> float | None:
        """The same, as a share of what was saved; None where that is too little to tell."""
        measured = statistics.median(self.measured_ms)
        return self.off_ms / (self.before - measured) if self.before > 1.2 * measured else None

    def row(self) -> str:
        """One row of the table."""
        low, high = (statistics.median(ends) for ends in (self.steps.low_ms, self.steps.high_ms))
        ends = f"{low:.1f}" if high - low < 0.05 else f"{low:.1f} to {high:.1f}"
        cells = [self.case.name, self.asked, self.change, f"{self.before:.1f}"]
        cells.append(f"{self.expected:.1f} ({ends})")
        if self.measured_ms:
            middle, least, most = (of(self.measured_ms) for of in (statistics.median, min, max))
            cells += [
                f"{middle:.1f} ({least:.1f} to {most:.1f})",
                "yes" if self.is_inside else "no",
                f"{self.off_ms / middle:+.0%}",
                "-" if self.of_saving is None else f"{self.of_saving:+.1%}",
            ]
        else:
            cells += ["-"] * 4
        if own_ms := self.case.own_ms:
            mean = statistics.mean(self.steps.expected_ms)
            cells += [f"{own_ms:.1f}", f"{(mean - own_ms) / own_ms:+.0%}"]
        else:
            cells += ["-"] * 2
        return f"| {' | '.join([*cells, f'{self.spread:.0%}'])} |"


def judge(case: Case, how: str, changes: Sequence[Change], graph: hg.TraceGraph) -> Judged:
    """Predict a capture without its cause."""
    alone = case.planted.against == "self"
    return Judged(
        case,
        how,
        " + ".join(map(str, changes)) or "as it was",
        predicted(graph, changes, longest=alone),
        sorted(_steps(graph))[:-1] if alone else case.measured_ms,
        hg.what_if(graph).hold_out.spread,
    )


def summary(found: Sequence[Judged]) -> Iterator[str]:
    """Yield a line for each way to ask, and for each cause that was asked for by name."""
    by: dict[str, list[Judged]] = {}
    for one in found:
        if one.measured_ms:
            by.setdefault(one.asked.partition(":")[0], []).append(one)
            if one.asked == "named":
                by.setdefault(f"named, {one.case.name}", []).append(one)
    for group, these in by.items():
        shares = [abs(one.of_saving) for one in these if one.of_saving is not None]
        middle = f"{statistics.median(shares):.0%}" if shares else "-"
        inside = sum(one.is_inside for one in these)
        yield f"{group}: {inside} of {len(these)} inside, {middle} of the saving off at the median"


_COLUMNS = (
    "capture", "asked", "change", "step", "predicted", "measured", "inside",
    "error, of the step", "of the saving", "own", "error", "spread",
)  # fmt: skip
_SLEEPERS = {
    "ddp_sleep_2": 1, "ddp_sleep_4": 3, "allreduce_2": 1, "async_2": 1, "fsdp2_2": 1,
    "pipeline_2": 0, "zoo_2": 1,
}  # fmt: skip
_SLEEPS = "after enumerate(DataLoader)*"


def job_rows(folder: Path) -> Iterator[str]:
    """Yield the rows of jobs in which one rank sleeps."""
    for name, rank in _SLEEPERS.items():
        job = hg.load_job(folder / name)
        truth = json.loads((folder / name / "truth_of_the_job.txt").read_text())
        mean = truth["mean_per_rank"][rank]
        own_ms = mean["step_ms"] - mean["planted_ms"]
        before_ms = statistics.mean(_steps_of(job))
        for change in (hg.remove(hg.code(_SLEEPS)).on_rank(rank), hg.equalise()):
            scenario = hg.what_if(job, change)
            expected_ms = _steps_of(scenario.job)
            mean_ms = statistics.mean(expected_ms)
            steps = ", ".join(f"{ms:.1f}" for ms in expected_ms)
            error = f"{(mean_ms - own_ms) / own_ms:+.0%}"
            yield f"| {name} | {change} | {before_ms:.1f} | {steps} | {own_ms:.1f} | {error} |"


def _steps_of(job: hg.Job) -> list[float]:
    """Length of each step on its longest rank, in ms."""
    return [ns / 1e6 for ns in job.step_times().groupby("step")["dur_ns"].max().tolist()]


def main() -> None:
    """Predict every capture and print the tables."""
    print(f"| {' | '.join(_COLUMNS)} |")
    print(f"|{' --- |' * len(_COLUMNS)}")
    found = []
    for case in cases(CAPTURES):
        graph = _graph(case.file)
        for how, changes in asked(graph, case.planted.named):
            found.append(judge(case, how, changes, graph))
            print(found[-1].row(), flush=True)
    print("\n" + "\n".join(summary(found)))
    if (jobs := CAPTURES / "jobs").exists():
        print("\n| job | change | step | predicted steps | own, mean | error |")
        print("| --- | --- | --- | --- | --- | --- |")
        for line in job_rows(jobs):
            print(line, flush=True)


if __name__ == "__main__":
    main()
