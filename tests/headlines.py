"""Headlines of damaged data against those of the whole: ``python -m tests.headlines``.

The law: *the headline of damaged data is that of the whole, or the answer says that data are
damaged or missing.* Exactly:

- The headline is the first finding: its cause (and which rank is late), the rank with more than
  half of its time, if one has, and the bound with most of it. Two headlines are equal if one of
  them is a near-tie of the other: a finding within 15% of the largest cost, a rank or a bound
  within 15% of the largest of its finding. They are equal, too, if no cause stands out in either.
- An answer says so by withholding the verdict, by an error, or by a sentence that the answer on the
  whole does not have: a warning on loading, `Verdict.damage`, a file that could not be loaded, a
  missing rank, collectives that could not be matched. Other numbers do not make it another
  sentence. Tables (`quality`, `repairs`) do not count: the headline is read before them.
- A loss that takes the cause away changes the headline rightly, and must still be told.
- What is left must differ from a shorter capture, and from the capture of another program: a last
  step that all ranks lost cannot be known, nor a collective that all ranks lost with its call.
  `tests.damage` has no such losses.

The command draws losses of every job in the captures, the public traces that are here, the demo and
some simulated jobs, with ``--traces`` of single traces with device work, and prints how often each
outcome came. It looks for `htagraph` where Python does: another version can be measured.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

import htagraph as hg
from htagraph.errors import HTAGraphError, HTAGraphWarning
from htagraph.findings.verdict import Finding
from tests.damage import (
    KINDS,
    LOSSES,
    Files,
    damaged,
    damaged_job,
    read_document,
    read_job,
    write_job,
)
from tests.public_traces import FOLDER
from tests.real_traces import CAPTURES, traces_in
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

_NEAR = 0.85
"""Part of the largest from which on two of anything are near-ties, as findings are ranked."""

SILENT = "WRONG"
"""What an outcome begins with that breaks the law."""
DEFECT = "DEFECT"
"""What one begins with that is an exception."""

_DEMO = Path(hg.__file__).parent / "synth" / "demo_traces"
_WORK = ("kernel", "Kernel")
_MOST_EVENTS = 80_000
"""Events of a source: a draw takes a few seconds."""
_LIMIT_S = 120
_SEVERAL = 4
"""Each fourth draw has three losses, the others one."""

_SIMULATED = {
    "late_python": {"ranks": 4, "straggler": 1},
    "late_loader": {"ranks": 3, "straggler": 2, "delay": "data_loading", "max_offset_ns": 10**6},
    "late_kernels": {"ranks": 4, "straggler": 0, "delay": "kernel", "tensor": 2},
    "slow_op": {"ranks": 2, "straggler": 1, "delay": "op", "steps": 5},
    "exposed": {"ranks": 4, "fault": "exposed_allreduce"},
    "loader": {"ranks": 4, "fault": "dataloader", "accumulate": 2},
    "sync": {"ranks": 2, "fault": "sync_in_loop", "layers": 3},
    "pipeline": {"ranks": 4, "pipeline": 2, "straggler": 3},
}
"""Options of simulated jobs, by name."""

_SPREAD = -2
"""Rank of a finding of which no rank has more than half: then the headline is of none."""

Headline = tuple[str, int, str]
"""Cause, rank (-1 for one trace, `_SPREAD` for several) and bound."""


@dataclass(frozen=True)
class Answer:
    """What a report says first."""

    first: Headline | None
    near: frozenset[Headline]
    is_balanced: bool
    withheld: str
    said: frozenset[str]
    in_tables: frozenset[str]

    @property
    def headline(self) -> str:
        """The headline in words."""
        if self.first is None:
            return f"withheld ({self.withheld[:70]})"
        cause, rank, bound = self.first
        on = f" on rank {rank}" if rank >= 0 and not cause.startswith("late") else ""
        return f"{cause}{on} ({bound})" + " balanced" * self.is_balanced


def answer(source: Path) -> Answer:
    """What a report says first of a trace or a job."""
    nothing: frozenset[Any] = frozenset()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", HTAGraphWarning)
        try:
            summary = hg.report(source, write=False).summary
            verdict = summary.verdict
            said = {*_said(summary)}
            tables = {*summary.weak_checks["check"].map(str)}
            if isinstance(summary, hg.Summary):
                tables |= {*summary.trace.repairs["kind"]}
        except HTAGraphError as error:
            why = f"{type(error).__name__}: {error}"
            return Answer(None, nothing, False, why, nothing, nothing)
    of_loading = (one for one in warned if issubclass(one.category, HTAGraphWarning))
    said |= {_without_numbers(str(one.message)) for one in of_loading}
    found = verdict.findings
    if verdict.withheld or not found:
        return Answer(None, nothing, False, verdict.withheld, frozenset(said), frozenset(tables))
    most_ns = max(map(_size_ns, found))
    near = [one for one in found if _size_ns(one) >= _NEAR * most_ns]
    heads = frozenset(head for one in near for head in _headlines(one))
    return Answer(
        first=next(_headlines(found[0])),
        near=heads,
        is_balanced=verdict.pair is not None,
        withheld="",
        said=frozenset(said),
        in_tables=frozenset(tables),
    )


def _said(summary: hg.Summary | hg.JobSummary) -> Iterator[str]:
    """Sentences of an answer that data are damaged or missing."""
    # Versions of htagraph before `Verdict.damage` are measured, too.
    yield from map(_without_numbers, getattr(summary.verdict, "damage", ()))
    if isinstance(summary, hg.JobSummary):
        yield from map(_without_numbers, summary.job.timeline.unmatched)
        yield from map(_without_numbers, summary.failures["error"].map(str))
        yield from (f"rank {rank} is missing" for rank in summary.job.missing_ranks)


def _without_numbers(sentence: str) -> str:
    return re.sub(r"[\d,.]+", "#", sentence)


def _size_ns(finding: Finding) -> int:
    return finding.path_ns if finding.cost_ns is None else finding.cost_ns


def _headlines(finding: Finding) -> Iterator[Headline]:
    """The headlines that a finding may have, the largest first."""
    ranks = finding.ranks or ((-1, 1),)
    half_ns = sum(rank_ns for _, rank_ns in ranks) / 2
    if ranks[0][1] <= half_ns / _NEAR:
        spread = (_SPREAD, ranks[0][1])
        ranks = (spread, *ranks) if ranks[0][1] <= half_ns else (*ranks, spread)
    for rank, rank_ns in ranks:
        for bound, bound_ns in finding.parts:
            if rank_ns >= _NEAR * ranks[0][1] and bound_ns >= _NEAR * finding.parts[0][1]:
                yield finding.label, rank, bound


def outcome(whole: Answer, now: Answer) -> str:
    """How an answer on damaged data compares with that on the whole."""
    if now.first is None:
        return "withheld"
    is_same = now.first in whole.near or whole.first in now.near
    told = now.said - whole.said
    if is_same or (whole.is_balanced and now.is_balanced):
        return "same, told" if told else "same"
    if told:
        return "wrong, told"
    return f"{SILENT}, only in tables" if now.in_tables - whole.in_tables else SILENT


def read(source: Path) -> Files:
    """The documents of a job, or the one of a trace."""
    return read_job(source) if source.is_dir() else {"trace.json": read_document(source)}


def written(files: Files, folder: Path) -> Path:
    """Write what `read` returned; the trace, or the folder of the job."""
    write_job(files, folder)
    return folder / "trace.json" if [*files] == ["trace.json"] else folder


def damaged_files(
    files: Files, rng: np.random.Generator, kinds: Sequence[str]
) -> tuple[Files, str]:
    """A trace or a job after some losses, and what was lost; empty if nothing was."""
    if [*files] != ["trace.json"]:
        return damaged_job(files, rng, kinds)
    document, lost = damaged(files["trace.json"], rng, kinds)
    return {"trace.json": document}, lost


@dataclass(frozen=True)
class Draw:
    """One draw: what was lost, its outcome, and both headlines."""

    source: str
    number: int
    kind: str
    lost: str
    outcome: str
    before: str
    after: str
    seconds: float

    def __str__(self) -> str:
        """Two lines."""
        return (
            f"{self.outcome}: {self.source} #{self.number} {self.lost}\n"
            f"    {self.before} -> {self.after}"
        )


def sources(folders: Iterable[Path], *, traces: bool) -> list[Path]:
    """Jobs, or single traces, in some folders; each content once."""
    found: dict[tuple[tuple[str, int], ...], Path] = {}
    for folder in folders:
        files = traces_in(folder)
        places = files if traces else map(_job_of, files)
        for place in dict.fromkeys(places):
            inside = [file for file in files if place in (file, *file.parents)]
            if traces or len(inside) > 1:
                found.setdefault(tuple((file.name, file.stat().st_size) for file in inside), place)
    return list(found.values())


def _job_of(file: Path) -> Path:
    """The folder of a job: of ranks, or of folders of a rank each."""
    return file.parent.parent if file.parent.name.isdigit() else file.parent


def draws(source: Path, seed: int, n_draws: int, kinds: Sequence[str] = ()) -> list[Draw]:
    """Damage a trace or a job some times; nothing if it is too large, or has no verdict."""
    try:
        files = read(source)
    except ValueError:  # broken as it is: the reader repairs it
        return []
    events = [event for document in files.values() for event in document["traceEvents"]]
    has_work = any(event.get("cat") in _WORK for event in events)
    if len(events) > _MOST_EVENTS or (len(files) == 1 and not has_work):
        return []
    with tempfile.TemporaryDirectory() as folder:
        whole = answer(written(files, Path(folder) / source.name))
    if whole.first is None:
        return []
    start = np.random.default_rng([seed, zlib.crc32(source.name.encode())])
    order = start.permutation([*(kinds or (LOSSES if len(files) == 1 else KINDS))]).tolist()
    found = []
    for number in range(n_draws):
        rng = start.spawn(1)[0]
        lost = ""
        for _ in order:
            order.append(order.pop(0))
            n = 3 if number % _SEVERAL == _SEVERAL - 1 else 1
            now, lost = damaged_files(files, rng, order[:n])
            if lost:
                break
        if not lost:
            break
        began = time.monotonic()
        how, shown = _answered(now, source.name, whole)
        took = time.monotonic() - began
        kind = "several" if n > 1 else lost.split(":")[0]
        name = f"{source.parent.name}/{source.name}"
        found.append(Draw(name, number, kind, lost, how, whole.headline, shown, took))
    return found


def _answered(files: Files, name: str, whole: Answer) -> tuple[str, str]:
    """The outcome for damaged files, and their headline."""
    with tempfile.TemporaryDirectory() as folder, _within(_LIMIT_S):
        try:
            now = answer(written(files, Path(folder) / name))
        except Exception as error:  # noqa: BLE001  to be counted
            return f"{DEFECT} {type(error).__name__}: {error}"[:80], ""
        return outcome(whole, now), now.headline


@contextmanager
def _within(limit_s: int) -> Iterator[None]:
    """End what takes too long."""

    def end(*_: object) -> NoReturn:
        message = f"takes over {limit_s} s"
        raise TimeoutError(message)

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def simulated(folder: Path) -> Path:
    """Write some simulated jobs."""
    for name, options in _SIMULATED.items():
        simulate_job(training_job(**options)).write(folder / name)  # type: ignore[arg-type]
    return folder


def main() -> int:
    """Draw, and print the outcomes; exit code 1 if one breaks the law."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--draws", type=int, default=20, help="of each source")
    parser.add_argument("--traces", action="store_true", help="single traces, not jobs")
    parser.add_argument("--kinds", nargs="*", default=[], choices=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", type=Path, help="keep the draws in this file, as JSON")
    asked = parser.parse_args()
    every: list[Draw] = []
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(asked.processes) as pool:
        folders = asked.folders or [CAPTURES, _DEMO, FOLDER]
        if not asked.traces and not asked.folders:
            folders.append(simulated(Path(folder) / "simulated"))
        found = sources(folders, traces=asked.traces)
        draw = partial(draws, seed=asked.seed, n_draws=asked.draws, kinds=asked.kinds)
        for some in pool.map(draw, found):
            print(*(one for one in some if one.outcome.startswith((SILENT, DEFECT))), sep="\n")
            every += some
    if asked.write:
        asked.write.write_text(json.dumps([asdict(one) for one in every], indent=1))
    table = pd.crosstab(
        pd.Series([one.kind for one in every], name="lost"),
        pd.Series([one.outcome for one in every], name="outcome"),
        margins=True,
        margins_name="all",
    )
    print(f"{len({one.source for one in every})} sources, {len(every)} draws")
    print(table.to_string())
    return int(any(one.outcome.startswith((SILENT, DEFECT)) for one in every))


if __name__ == "__main__":
    sys.exit(main())
