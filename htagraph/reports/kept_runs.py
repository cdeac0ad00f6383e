"""Runs that are kept, one row each: `FOLDER/.htagraph/runs.jsonl`, and their profiles next to it.

`htagraph watch`, `report --keep`, `check --keep` and `hg.profile(…, keep=)` add rows. A row is a
line of JSON with the fields of `KeptRun`, which pandas and DuckDB read as they are; later versions
only add fields. ``profiles/KEY.json.gz`` is the profile of the run: `htagraph diff` and `check
--baseline` accept it for the run.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b, file_digest
from math import isfinite
from pathlib import Path
from typing import Literal

import msgspec

from htagraph.comparison.comparability import other_work
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import RunProfile
from htagraph.errors import TraceFormatError
from htagraph.job.job import Job
from htagraph.model.labels import name_label
from htagraph.model.units import human_duration, human_percent, human_time
from htagraph.readers.storage import file_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import summary_profile
from htagraph.reports.report import Report, report
from htagraph.reports.summary import Summary
from htagraph.run.trace import Trace
from htagraph.writers.output_file import append_line, new_folder, write_text

FOLDER = ".htagraph"
"""Where runs are kept: a hidden folder next to the traces, which no verb takes for traces."""

LINE_WIDTH = 119
"""Characters of a run in one line: `report --line` prints fewer than 120. Pinned by
`test_kept_runs.py`."""

_LEAST_NAME = 12
"""Characters that a name keeps in it, whatever else there is to say: chosen."""

_FROM_NS = 946_684_800_000_000_000
"""2000-01-01: a trace whose times begin before it does not count from 1970."""

_TAIL = 1 << 20
"""Bytes at the end of the rows among which the last comparable run is searched: about a thousand
rows, so a long history costs no more than a short one. Chosen."""

_MOST_TRIED = 20
"""Earlier runs that one is compared with until one of them is comparable: chosen, as jobs in turn
in one folder are fewer."""

_GIT_S = 10
"""Seconds that git may take: chosen. Without an answer the commit is unknown."""

_DEVICE = ("idle", "communication")
"""States of devices that a logger gets: those that a check has limits for."""

KeptBy = Literal["watch", "report", "check", "try"]
"""What kept a run."""


@dataclass(frozen=True)
class KeptFile:
    """A file of a kept run: it is known by its place, size and time; or else by its content."""

    path: str
    n_bytes: int
    changed_ns: int
    digest: str

    @classmethod
    def of(cls, path: Path) -> KeptFile:
        """A file as it is now."""
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            digest = file_digest(file, lambda: blake2b(digest_size=8)).hexdigest()
        return cls(str(path), state.st_size, state.st_mtime_ns, digest)


@dataclass(frozen=True)
class KeptRun:
    """A run in one row: when, where and of what commit, its step time, and what limits it."""

    key: str  # By the content of its files: a run is kept once
    start_ns: int  # When it was recorded, since 1970
    name: str
    source: str  # What kept it: ``watch``, ``report``, ``check`` or ``try``
    commit: str = ""  # Checked out where its files are when it was recorded; empty for unknown
    devices: str = ""
    torch: str = ""  # Version of PyTorch; empty for unknown
    unit: str = ""  # ``step``, or ``window`` if it has no steps: what times are of
    world_size: int = 0
    n_ranks: int = 0
    n_steps: int = 0
    step_ns: int | None = None  # Step time, that of the report; None if it could not be read
    typical_step_ns: int | None = None  # Mean of typical steps, which comparisons use
    n_typical: int = 0
    std_ns: int = 0  # From one typical step to another
    headline: str = ""
    state: str = ""  # As of a verdict: ``first cause``, ``nothing``, ``withheld`` …
    first_cause: str = ""  # Empty if nothing costs 5%, or that is unknown
    first_cost_ns: int | None = None
    first: str = ""  # Both in words
    # What the run would be shorter by without each cause, per step; None if it was not replayed
    cost_ns: dict[str, int | None] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    # series: key of the first of the runs that are comparable in turn; earlier: of the last one
    series: str = ""
    earlier: str = ""
    change_share: float | None = None  # How much longer its typical steps are than those
    noise_share: float | None = None  # The largest difference that counts as noise; None: unknown
    change: str = ""  # The comparison in words
    is_change: bool = False  # Beyond noise, not as a busy machine makes it, and nothing is damaged
    files: list[KeptFile] = field(default_factory=list)
    error: str = ""  # Why it could not be read

    @property
    def line(self) -> str:
        """The run in one line of fewer than 120 characters."""
        said = [self.error]
        if self.step_ns is not None:
            step = human_duration(self.step_ns) + (" a step" if self.unit == "step" else "")
            said = [step, self.first, *(["damaged"] if self.damage else []), self.moved]
        told = " · ".join(filter(None, said))
        told = told[: LINE_WIDTH - _LEAST_NAME - 2]
        return f"{name_label(self.name, width=LINE_WIDTH - len(told) - 2)}: {told}"

    @property
    def moved(self) -> str:
        """The change against the run before it, in a few words; empty for none before it."""
        if self.change_share is None:
            return ""
        if self.noise_share is None:
            return "too few steps to compare"
        if abs(self.change_share) <= self.noise_share:
            return "no change"
        how = "slower" if self.change_share > 0 else "faster"
        why = f" (noise {human_percent(self.noise_share)})" if self.is_change else ", in doubt"
        return f"{human_percent(abs(self.change_share))} {how}{why}"


def row_of(
    summary: Summary | JobSummary,
    profile: RunProfile | None = None,
    source: KeptBy = "report",
    *,
    files: Sequence[Path] = (),
) -> KeptRun:
    """A run in one row, not yet compared; nothing is written.

    `files`: all that were given, also those that cannot be used; by default those that are.
    """
    run, verdict = profile or summary_profile(summary), summary.verdict
    per = max(verdict.n_steps, 1)
    first = next(iter(verdict.cards), None)
    said = f"{first.title}: {first.said}" if first else _no_first_cause(verdict.state)
    kept = [KeptFile.of(path) for path in files or _files(summary) if path.is_file()]
    start_ns = summary.path.start_ns
    changed_ns = max((one.changed_ns for one in kept), default=0)
    row = KeptRun(
        key=_key([one.digest for one in kept] or [repr(run.document())]),
        start_ns=start_ns if start_ns > _FROM_NS else changed_ns,
        name=summary.name,
        source=source,
        devices=run.devices,
        torch=summary.settings.torch or "",
        unit=run.unit if verdict.n_steps else "window",
        world_size=run.world_size,
        n_ranks=run.n_ranks,
        n_steps=verdict.n_steps,
        step_ns=round(verdict.dur_ns / per),
        typical_step_ns=round(run.typical_step_ns),
        n_typical=run.n_compared,
        std_ns=round(max(part.std_ns for part in run.usual.parts if part.part == "step")),
        headline=verdict.headline,
        state=verdict.state,
        first_cause=first.findings[0].label if first else "",
        first_cost_ns=None if first is None or first.cost_ns is None else first.cost_ns // per,
        first=said,
        cost_ns={
            one.label: None if one.cost_ns is None else one.cost_ns // per
            for one in verdict.findings
        },
        damage=list(verdict.damage),
        files=kept,
    )
    return replace(row, commit=commit_at(Path(kept[0].path).parent, row.start_ns) if kept else "")


def unread(paths: Sequence[Path], start_ns: int, why: str, source: KeptBy) -> KeptRun:
    """The row of a run that could not be read."""
    files = [KeptFile.of(path) for path in paths]
    return KeptRun(
        key=_key(one.digest for one in files),
        start_ns=start_ns or max(one.changed_ns for one in files),
        name=Path(files[0].path).name,
        source=source,
        files=files,
        error=" ".join(why.split()),
    )


def _key(digests: Iterable[str]) -> str:
    """The key of a run, by the content of its files."""
    return blake2b("".join(sorted(digests)).encode(), digest_size=8).hexdigest()


def _no_first_cause(state: str) -> str:
    """Why a verdict has no first cause, in a few words."""
    return "nothing costs over 5%" if state == "nothing" else "not enough recorded to say why"


def _files(summary: Summary | JobSummary) -> list[Path]:
    """The files that a summary is of: a file may hold several ranks."""
    if isinstance(summary, JobSummary):
        paths = [rank.path for rank in summary.job.summaries.values()]
    else:
        paths = [] if summary.trace.path is None else [summary.trace.path]
    return list(dict.fromkeys(file_of(Path(path)) for path in paths))


def commit_at(folder: Path, time_ns: int) -> str:
    """The commit that was checked out in a folder at a time; empty if git cannot tell."""
    asked = f"HEAD@{{{human_time(time_ns)[:19]} +0000}}"
    try:
        found = git(folder, "rev-parse", "--verify", asked)
    except (OSError, subprocess.SubprocessError):
        return ""
    # It warns if it knows of no time as early, and answers with the earliest.
    return "" if found.returncode or found.stderr else found.stdout.strip()


def git(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """What git says of the repository that a folder is in."""
    command = ["git", "-C", str(folder), *args]
    return subprocess.run(  # noqa: S603  a fixed command, no shell
        command,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_GIT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )


class KeptRuns:
    """The runs that are kept in a folder.

    Parameters
    ----------
    folder : str or Path
        The folder with the traces; it need not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder) / FOLDER
        self.table = self.folder / "runs.jsonl"

    def __iter__(self) -> Iterator[KeptRun]:
        """All rows, in the order in which they were kept."""
        return self._rows(0)

    def _rows(self, start: int) -> Iterator[KeptRun]:
        """The rows whose lines begin from a byte on."""
        if not self.table.exists():
            return
        with self.table.open("rb") as file:
            if start > 0:
                file.seek(start - 1)
                file.readline()
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return  # of a writer that was killed; the next one removes it
                try:
                    yield msgspec.json.decode(line, type=KeptRun)
                except msgspec.MsgspecError as exc:
                    hint = "remove that line, or the file."
                    said = f"line {number} is no row of a run: {exc}."
                    raise TraceFormatError(said, path=self.table, hint=hint) from exc

    @property
    def _latest(self) -> list[KeptRun]:
        """The rows that were kept last, the last one first."""
        size = self.table.stat().st_size if self.table.exists() else 0
        return [*self._rows(size - _TAIL)][::-1]

    def profile_file(self, key: str) -> Path:
        """The file with the profile of a run."""
        return self.folder / "profiles" / f"{key}.json.gz"

    def compared(self, row: KeptRun, profile: RunProfile) -> KeptRun:
        """A run, compared with the last one before it that is comparable, if any is."""
        alike = ("unit", "devices", "world_size", "n_ranks")
        earlier = [
            one
            for one in self._latest
            if one.start_ns <= row.start_ns
            and one.key != row.key
            and not one.error
            and all(getattr(one, name) == getattr(row, name) for name in alike)
        ]
        earlier.sort(key=lambda one: -one.start_ns)
        for one in earlier[:_MOST_TRIED]:
            try:
                found = RunDiff(RunProfile.read(self.profile_file(one.key)), profile)
            except TraceFormatError:  # it was removed, or is of another version
                continue
            if not found.not_comparable and not other_work(found.before, found.after):
                return replace(
                    row,
                    series=one.series,
                    earlier=one.key,
                    change_share=found.delta_share,
                    noise_share=found.noise_share if isfinite(found.noise_share) else None,
                    change=found.verdict(),
                    is_change=found.is_change and not found.damage,
                )
        return replace(row, series=row.key)

    def prepare(self, row: KeptRun, profile: RunProfile) -> KeptRun:
        """Compare a run, and write its profile: with `add`, the run is kept."""
        row = self.compared(row, profile)
        new_folder(self.profile_file(row.key).parent)
        content = {"run": msgspec.to_builtins(row), "profile": profile.document()}
        text = json.dumps({"schema": "htagraph.profile", **content})
        write_text(self.profile_file(row.key), text + "\n")
        return row

    def add(self, row: KeptRun) -> None:
        """Append the row of a run: it is on the disk when this returns.

        One that another process kept meanwhile stays.
        """
        new_folder(self.folder)
        if all(one.key != row.key for one in self._latest):
            append_line(self.table, msgspec.json.encode(row))

    def keep(self, summary: Summary | JobSummary, source: KeptBy) -> KeptRun:
        """Keep a run; one that is kept already, by its content, is left as it is."""
        profile = summary_profile(summary)
        row = row_of(summary, profile, source)
        if known := next((one for one in self if one.key == row.key), None):
            return known
        row = self.prepare(row, profile)
        self.add(row)
        return row


def scalars(run: str | Path | Trace | Job | Report | Summary | JobSummary) -> dict[str, float]:
    """A run as a flat dict of numbers, for TensorBoard, Weights & Biases and other loggers.

    Parameters
    ----------
    run : str, Path, Trace, Job, Report, Summary or JobSummary
        A file or folder is read as by `report`.

    Returns
    -------
    dict of str to float
        ``step_ms`` and ``typical_step_ms``; ``cost_ms/CAUSE``, what a step would be shorter by
        without a cause; of devices, shares of the time: ``device/idle``, and exposed
        ``device/communication``. What is unknown is left out.

    Examples
    --------
    >>> import htagraph as hg
    >>> found = hg.scalars(hg.demo_trace("dataloader"))
    >>> round(found["step_ms"], 2), round(found["cost_ms/data loading"], 2)
    (7.92, 5.7)
    """
    if isinstance(run, str | Path | Trace | Job):
        run = report(run, write=False)
    summary = run.summary if isinstance(run, Report) else run
    profile = summary_profile(summary)
    row = row_of(summary, profile)
    times = {"step_ms": row.step_ns, "typical_step_ms": row.typical_step_ns}
    times |= {f"cost_ms/{cause}": cost_ns for cause, cost_ns in row.cost_ns.items()}
    shares = {f"device/{part}": profile.share("device", part) for part in _DEVICE}
    found = {name: ns / 1e6 for name, ns in times.items() if ns is not None}
    return found | {name: share for name, share in shares.items() if share is not None}
