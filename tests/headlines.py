"""Headlines of damaged data against those of the whole: ``python -m tests.headlines``.

The law: *the headline of damaged data is that of the whole, or the answer says that data are
damaged or missing.* Exactly:

- The headline is the first finding: its cause (and which rank is late), the rank and the bound with
  most of its time. Headlines are equal if one of them is a near-tie of the other: a finding within
  15% of the largest drag, a rank or a bound within 15% of the largest of its finding. If no cause
  stands out in either, they are equal, too.
- An answer says so by withholding the verdict, by an error, or by a sentence that the answer on the
  whole does not have: a warning on loading, `Verdict.damage`, `damage()` of the graph or the job, a
  file that could not be loaded, a missing rank, collectives that could not be matched. Numbers in a
  sentence do not make it another one. Tables (`quality`, `repairs`) do not count: no one reads them
  before the headline.
- A loss that takes the cause away changes the headline rightly, and must still be told.
- What is left must differ from a shorter capture, or from the capture of another program: the first
  or last step that all ranks lost cannot be known, nor a collective that all ranks lost with its
  call. `tests.damage` does not draw those.

The command draws losses of every job in the captures, the public traces that are here and the demo,
with ``--traces`` also of single traces with device work, and prints how often each outcome came.
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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import htagraph as hg
from htagraph.errors import HTAGraphError, HTAGraphWarning
from htagraph.findings.verdict import Finding, Verdict
from tests.damage import (
    JOB_LOSSES,
    LOSSES,
    damaged,
    damaged_job,
    read_document,
    read_job,
    write_document,
    write_job,
)
from tests.public_traces import FOLDER
from tests.real_traces import CAPTURES, traces_in

__all__ = ["SILENT", "Answer", "answer", "outcome"]

_NEAR = 0.85
"""Part of the largest from which on two of anything are near-ties, as findings are ranked."""

SILENT = "WRONG"
"""The outcome that breaks the law."""

_DEMO = Path(hg.__file__).parent / "demo_traces"
_DEVICE = ("kernel", "Kernel")
_MOST_EVENTS = 60_000
"""Events of a source: a draw takes a few seconds."""
_LIMIT_S = 120

Headline = tuple[str, int, str]
"""Cause, rank (-1 for one trace) and bound."""


@dataclass(frozen=True)
class Answer:
    """What a report says first.

    Parameters
    ----------
    first : Headline or None
        None if there is no verdict.
    near : frozenset of Headline
        The headline, and its near-ties.
    is_balanced : bool
        Whether no cause stands out.
    withheld : str
        Why there is no verdict, or the error.
    said : frozenset of str
        Sentences that data are damaged or missing.
    in_tables : frozenset of str
        Checks and repairs that a reader may find further below.
    """

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
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            summary = hg.report(source, write=False).summary
            verdict = summary.verdict
            said = set(_said(summary, verdict))
            tables = {f"{row.check}" for row in summary.weak_checks.itertuples()}
            if isinstance(summary, hg.Summary):
                tables |= set(summary.trace.repairs["kind"])
        except HTAGraphError as error:
            return Answer(None, frozenset(), False, f"{type(error).__name__}: {error}", *_NOTHING)
    said |= {str(one.message) for one in warned if issubclass(one.category, HTAGraphWarning)}
    sentences = frozenset(re.sub(r"[\d,.]+", "#", each) for each in said)
    found = verdict.findings
    if verdict.withheld or not found:
        return Answer(None, frozenset(), False, verdict.withheld, sentences, frozenset(tables))
    most_ns = max(map(_size_ns, found))
    near = [one for one in found if _size_ns(one) >= _NEAR * most_ns]
    heads = frozenset(head for one in near for head in _headlines(one))
    first = next(_headlines(found[0]))
    return Answer(first, heads | {first}, bool(verdict.balance), "", sentences, frozenset(tables))


_NOTHING: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())


def _said(summary: Any, verdict: Verdict) -> Iterator[str]:
    """Sentences of an answer that data are damaged or missing."""
    yield from _lines(getattr(verdict, "damage", ()))
    if isinstance(summary, hg.JobSummary):
        job = summary.job
        yield from _lines(getattr(job, "damage", ()))
        yield from job.timeline.unmatched
        yield from summary.failures["error"].map(str)
        yield from (f"rank {chr(ord('A') + rank % 26)} is missing" for rank in job.missing_ranks)
    else:
        yield from _lines(getattr(summary.graph, "damage", ()))


def _lines(what: Any) -> list[str]:
    """Sentences, however they are given."""
    found = what() if callable(what) else what
    if isinstance(found, str):
        return [found] if found else []
    return [str(one) for one in found]


def _size_ns(finding: Finding) -> int:
    return finding.dur_ns if finding.drag_ns is None else finding.drag_ns


def _headlines(finding: Finding) -> Iterator[Headline]:
    """The headlines that a finding may have, the largest first."""
    ranks = finding.ranks or ((-1, 1),)
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


def sources(folders: Iterable[Path], *, traces: bool) -> list[Path]:
    """Jobs, or single traces, in some folders; each content once."""
    found: dict[tuple[tuple[str, int], ...], Path] = {}
    for folder in folders:
        files = traces_in(folder)
        places = files if traces else [_job_of(file) for file in files]
        for place in dict.fromkeys(places):
            inside = [place] if traces else [file for file in files if place in file.parents]
            if traces or len(inside) > 1:
                found.setdefault(tuple((file.name, file.stat().st_size) for file in inside), place)
    return list(found.values())


def _job_of(file: Path) -> Path:
    """The folder of a job: of ranks, or of folders of a rank each."""
    return file.parent.parent if file.parent.name.isdigit() else file.parent


def drawn(source: Path, seed: int, n_draws: int, kinds: Sequence[str] = ()) -> list[Draw]:
    """Damage a trace or a job some times; empty if the whole has no verdict, or is too large."""
    is_job = source.is_dir()
    try:
        given: Any = read_job(source) if is_job else read_document(source)
    except ValueError:  # broken as it is: the reader repairs it
        return []
    events = [document["traceEvents"] for document in (given.values() if is_job else [given])]
    if sum(map(len, events)) > _MOST_EVENTS:
        return []
    if not is_job and not any(event.get("cat") in _DEVICE for event in events[0]):
        return []
    name = "trace.json"
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / source.name.split(".")[0] if is_job else Path(folder) / name
        whole = answer(write_job(given, there) if is_job else write_document(given, there))
    if whole.first is None:
        return []
    draws = []
    for number in range(n_draws):
        rng = np.random.default_rng([seed, zlib.crc32(source.name.encode()), number])
        n_lost = 1 if number % 4 else 3
        options = {"kinds": kinds} if kinds else {}
        lose = damaged_job if is_job else damaged
        lost = ""
        for _ in range(20):
            now, lost = lose(given, rng, n=n_lost, **options)
            if lost:
                break
        if not lost:
            break
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            there = Path(folder) / source.name.split(".")[0] if is_job else Path(folder) / name
            written = write_job(now, there) if is_job else write_document(now, there)
            with _limited():
                try:
                    after = answer(written)
                    how = outcome(whole, after)
                    shown = after.headline
                except TimeoutError as error:
                    how, shown = str(error), ""
                except Exception as error:
                    how, shown = f"DEFECT {type(error).__name__}: {error}"[:90], ""
        kind = "several" if "; " in lost and n_lost > 1 else lost.split(":")[0]
        took = time.monotonic() - began
        draws.append(Draw(_name(source), number, kind, lost, how, whole.headline, shown, took))
    return draws


class _limited:
    """Ends what takes too long."""

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._end)
        signal.alarm(_LIMIT_S)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)

    @staticmethod
    def _end(*_: object) -> NoReturn:
        message = f"takes over {_LIMIT_S} s"
        raise TimeoutError(message)


def _name(source: Path) -> str:
    return f"{source.parent.name}/{source.name}"


def table(draws: Sequence[Draw]) -> str:
    """Outcomes by kind of loss."""
    import pandas as pd

    frame = pd.DataFrame({"kind": [d.kind for d in draws], "how": [d.outcome for d in draws]})
    return str(pd.crosstab(frame["kind"], frame["how"], margins=True, margins_name="all"))


def main() -> int:
    """Draw, and print the outcomes; exit code 1 if one breaks the law."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[CAPTURES, _DEMO, FOLDER])
    parser.add_argument("--draws", type=int, default=20, help="of each source")
    parser.add_argument("--traces", action="store_true", help="single traces, not jobs")
    parser.add_argument(
        "--kinds", nargs="*", default=[], choices=[*JOB_LOSSES, "absent_rank", "one_trace_twice"]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", type=Path, help="keep the draws in this file, as JSON")
    asked = parser.parse_args()
    found = sources(asked.folders, traces=asked.traces)
    n = len(found)
    with ProcessPoolExecutor(asked.processes) as pool:
        each = pool.map(drawn, found, [asked.seed] * n, [asked.draws] * n, [asked.kinds] * n)
        draws = []
        for some in each:
            for one in some:
                if one.outcome.startswith((SILENT, "DEFECT", "takes")):
                    print(
                        f"{one.outcome}: {one.source} #{one.number} {one.lost}\n    {one.before} -> {one.after}",
                        flush=True,
                    )
            draws += some
    if asked.write:
        asked.write.write_text(json.dumps([asdict(one) for one in draws], indent=1))
    print(f"{len({one.source for one in draws})} sources, {len(draws)} draws")
    print(table(draws))
    n_silent = sum(one.outcome.startswith(SILENT) for one in draws)
    return int(n_silent > 0)


if __name__ == "__main__":
    sys.exit(main())
