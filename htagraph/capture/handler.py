"""`handler`: the `on_trace_ready` of a profiler, which writes traces and a report.

The report is written by a child process, while the training continues.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread, main_thread
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from htagraph.capture.asked import asked, is_asked
from htagraph.capture.sampler import sample_recordings, samples_of_latest
from htagraph.capture.trace_file import (
    POLL_S,
    TraceFile,
    TraceName,
    missing_ranks,
    names_in,
    ranks_in_words,
)
from htagraph.errors import HTAGraphError, OutputError, QueryError

_FAR = 10_000
"""Steps within which the next cycle must begin, chosen: later ones get a report of their own.
Pinned by `tests/capture/test_handler.py`."""

_RECORDING = frozenset({"RECORD", "RECORD_AND_SAVE"})


def ended_cycle(profiler: Any, before: int) -> tuple[int | None, bool, int]:  # noqa: ANN401
    """The cycle that just ended, when a profiler calls `on_trace_ready`.

    Its first step, None if the profiler counts no steps; whether no other follows, as far as the
    schedule tells; and how many whole steps it recorded, -1 if unknown. `before`: step in which the
    previous cycle ended, -1 for none.
    """
    step: int | None = getattr(profiler, "step_num", None)
    schedule = getattr(profiler, "schedule", None)
    if step is None or not getattr(profiler, "record_steps", False):
        return None, True, -1
    if not isinstance(schedule, FunctionType):
        return step, False, -1  # calling an object might change its state

    def action(number: int) -> str:
        return str(schedule(number).name)

    try:
        # Whether `stop()` ended the cycle, not the step after its last one.
        stopped = profiler.current_action.name != "DEVICE_STOPPED" and (
            step in (0, before) or action(step - 1) != "RECORD_AND_SAVE"
        )
        first = step if stopped else step - 1
        while first > max(before, 0) and action(first - 1) == "RECORD":
            first -= 1
        last = stopped or not any(action(step + n) in _RECORDING for n in range(_FAR))
    except Exception:  # noqa: BLE001  a schedule is the user's code
        return step, False, -1
    return first, last, step - first


@dataclass(frozen=True)
class Place:
    """Rank and world size of a process."""

    world_size: int = 1
    rank: int = 0

    @classmethod
    def now(cls) -> Place:
        """The place according to torch.distributed, else to the environment that torchrun sets."""
        # Imported already by any job that uses it.
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_world_size(), distributed.get_rank())
        try:
            size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        except (KeyError, ValueError):
            return cls()
        return cls(size, rank) if 0 <= rank < size else cls()

    def notice(self, message: object) -> None:
        """Write a message of one line to stderr."""
        of_rank = f" (rank {self.rank})" if self.world_size > 1 else ""
        with suppress(Exception):  # stderr may be closed, or belong to a notebook that is gone
            sys.stderr.write(f"htagraph{of_rank}: {' '.join(str(message).split())}\n")
            sys.stderr.flush()


_NICENESS = 19
"""The lowest priority that POSIX has: the training goes first."""


def reported(
    trace: Path,
    folder: Path | None,
    out: Path,
    *,
    stacks: bool = False,
    keep: Path | None = None,
    meanwhile: Callable[[str], None] = lambda _: None,
) -> tuple[str, str]:
    """Write the report on a trace, or on all ranks of its capture, into the folder `out`.

    Returns what to print of it, which is all that it found if it has no files; and why it has none,
    empty if it has. `folder` has the files of the other ranks, None for a job of one; in `keep`,
    the run is kept, too; `meanwhile` is called every second with a message.
    """
    about = [str(trace)] if folder is None else [str(folder), "--capture", trace.name]
    options = ["--out", str(out), *(["--stacks"] if stacks else [])]
    options += [] if keep is None else ["--keep", str(keep)]
    # -P: files in the working directory hide no module; the child gets the path of the training.
    command = [sys.executable, "-P", "-m", "htagraph", "report", *about, *options]
    known = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
    child = subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={
            **os.environ,
            "PYTHONPATH": known,
            "PYTHONIOENCODING": "utf-8",
        },
        process_group=0 if os.name == "posix" else None,  # Ctrl-C ends the training only
    )
    with suppress(OSError, AttributeError):  # Windows has no setpriority
        os.setpriority(os.PRIO_PROCESS, child.pid, _NICENESS)
    while True:
        with suppress(subprocess.TimeoutExpired):
            output, errors = child.communicate(timeout=POLL_S)
            break
        meanwhile(f"writing the report into {out}")
    if not child.returncode:
        lines = [line.rstrip() for line in output.splitlines()]
        # The first paragraphs: what was recorded, and what limits it.
        return "\n\n".join("\n".join(lines).split("\n\n")[:2]).strip(), ""
    # On a full disk, what was printed before is all that is left of minutes of analysis.
    last = (errors.strip() or f"exit code {child.returncode}").splitlines()[-1]
    return output.strip(), last.removeprefix("error: ")


_PAGES = ("report.html", "summary.md")
"""Files of a report to open, the best first."""


def handler(
    folder: str | Path, *, report: bool = True, timeout_s: float = 120.0, sample_ms: float = 1.0
) -> TraceHandler:
    """Handler for torch.profiler that writes the traces of all ranks, and a report at the end.

    Pass it as `on_trace_ready`. Each rank writes one file per cycle, named by rank, first step and
    time, compressed in the background. After the last cycle rank 0 waits for the files of the other
    ranks, writes a report next to the traces, and prints what limits the run. Training continues
    meanwhile. A failure here never ends the training; it prints one line to stderr.

    Make it before the profiler starts: it enables CUDA synchronization events in all profilers of
    the process, if this torch has them.

    Parameters
    ----------
    folder : str or Path
        For the traces and reports of all ranks. It may hold those of other runs.
    report : bool, default=True
        Whether rank 0 reports on the last cycle. If the schedule has no end, or is not a plain
        function, that is the last one before the process ends.
    timeout_s : float, default=120, unit=s
        How long rank 0 waits for the files of the other ranks. It then reports on those it has.
    sample_ms : float, default=1, unit=ms
        How often the Python stacks of all threads are sampled while a profiler of the process
        records; 0 for never. With ``with_stack=True`` the samples are dropped.

    Returns
    -------
    TraceHandler

    Examples
    --------
    >>> import tempfile
    >>> import htagraph as hg
    >>> ready = hg.handler(tempfile.mkdtemp())

    Then ``torch.profiler.profile(schedule=…, on_trace_ready=ready)`` is all you need.
    """
    return TraceHandler(
        folder,
        report=report,
        timeout_s=timeout_s,
        sample_ms=sample_ms,
        records_waits=_switch_on_waits(),
    )


class TraceHandler:
    """Writes the trace of each cycle of a profiler, and a report on the last.

    Parameters
    ----------
    timeout_s : float, default=120, unit=s
    sample_ms : float, default=1, unit=ms
    records_waits : bool, default=True
        Whether CUDA synchronization events are recorded, as far as is known.
    keep : str or Path, optional
        Folder in which each run that is reported on is kept.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        report: bool = True,
        timeout_s: float = 120.0,
        sample_ms: float = 1.0,
        records_waits: bool = True,
        keep: str | Path | None = None,
    ) -> None:
        self.folder = Path(asked("folder", folder)).absolute()
        self._keep = None if keep is None else Path(keep).absolute()
        self.report = report and not is_asked()
        self.timeout_s = timeout_s
        self._records_waits = records_waits
        self._place = Place.now()
        self._earlier = frozenset(names_in(self.folder))
        self._stopped_at: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._n_written: Counter[int | None] = Counter()
        self._latest: TraceFile | None = None
        sample_ms = asked("sample_ms", float(sample_ms))
        if not 0 <= sample_ms < math.inf:
            raise QueryError(f"sample_ms={sample_ms}.", hint="give milliseconds, 0 for no samples.")
        self._sample_ms = sample_ms
        with suppress(ImportError):
            sample_recordings(self, sample_ms)

    @property
    def place(self) -> Place:
        """Rank and world size, also before torch.distributed starts and after it ends."""
        now = Place.now()
        if now.world_size > self._place.world_size:
            self._place = now
        return self._place

    def __call__(self, profiler: Any) -> None:  # noqa: ANN401  torch is no dependency
        """Write the trace of the cycle that just ended."""
        with self._unharmed():
            step, is_last, n_steps = ended_cycle(profiler, self._stopped_at.get(profiler, -1))
            self._stopped_at[profiler] = getattr(profiler, "step_num", 0)
            if n_steps == 0 and self._latest is not None:
                self.place.notice(f"step {step} was cut off: it has no trace.")
                return
            self.finish(self.exported(profiler, step), is_last=is_last)

    def exported(self, profiler: Any, step: int | None) -> TraceFile | None:  # noqa: ANN401
        """The trace of a cycle that began in a step, not yet compressed; None if that fails."""
        name = TraceName(self.place.rank, step, time.time_ns())
        with_stack, sampler = bool(getattr(profiler, "with_stack", False)), samples_of_latest()
        sampler = sampler if self._sample_ms and not with_stack else None
        file = TraceFile(self.folder, name, with_stack, sampler)
        try:
            self._warn_of_missing_waits(profiler)
            file.export(profiler)
            if file.is_cut_off():
                self.place.notice(f"{name} is truncated; is the disk full? The rest is kept.")
        except Exception as error:  # noqa: BLE001  of any torch, any disk
            file.discard()
            self._excuse(error)
            return None
        return file

    def finish(self, file: TraceFile | None, *, is_last: bool) -> None:
        """Compress a trace in the background, and report on it if it is the last."""
        if file is None:
            return
        self._n_written[file.name.step] += 1
        self._latest = file
        with self._unharmed():
            # Not a daemon: the interpreter waits for it before it exits.
            Thread(
                target=self._finish,
                args=(file, self._n_written[file.name.step], is_last),
                name="htagraph-capture",
            ).start()

    def _finish(self, file: TraceFile, n: int, is_last: bool) -> None:
        """Compress and report; `n` files that began in this step were written so far."""
        with self._unharmed():
            try:
                trace = file.compress()
            except OutputError as error:
                self._excuse(error)
                trace = file.kept
            if self.report and self.place.rank == 0 and (is_last or self._is_last_of_all(file)):
                self._report(file, trace, n)

    def _is_last_of_all(self, file: TraceFile) -> bool:
        """Whether no other trace follows before the process ends; waits until that is known."""
        while main_thread().is_alive() and self._latest is file:
            main_thread().join(POLL_S)
        return self._latest is file

    def _report(self, file: TraceFile, trace: Path, n: int) -> None:
        """Print the verdict on the capture of a trace, once the files of all ranks are there."""
        world_size = self.place.world_size
        missing = missing_ranks(
            self.folder,
            self._earlier,
            world_size,
            file.name.step,
            n,
            timeout_s=self.timeout_s,
            meanwhile=self._notice_at_exit(),
        )
        if missing:
            self.place.notice(
                f"no trace from {ranks_in_words(missing)} within {self.timeout_s:g} s; the report "
                "leaves them out."
            )
        out = file.name.report(self.folder)
        findings, failure = reported(
            trace,
            self.folder if world_size > 1 else None,
            out,
            stacks=file.with_stack,
            keep=self._keep,
            meanwhile=self._notice_at_exit(),
        )
        page = next((out / name for name in _PAGES if (out / name).exists()), out)
        said = [findings, "" if failure else f"The report: {page}"]
        with suppress(Exception):  # stdout may be closed
            sys.stdout.write("".join(f"\n{one}\n" for one in said if one))
            sys.stdout.flush()
        if failure:
            what = "the report is only printed" if findings else "there is no report"
            self.place.notice(f"{what}: {failure}")

    def _notice_at_exit(self) -> Callable[[str], None]:
        """Function that prints once, after the training, why the process still runs."""
        printed: list[str] = []

        def notice_once(doing: str) -> None:
            if not printed and not main_thread().is_alive():
                printed.append(doing)
                self.place.notice(f"{doing} (Ctrl-C to quit)")

        return notice_once

    def _warn_of_missing_waits(self, profiler: Any) -> None:  # noqa: ANN401
        """Warn once if the profiler records CUDA, but no synchronization events."""
        used = {str(getattr(one, "name", "")) for one in getattr(profiler, "activities", ())}
        if "CUDA" in used and not self._records_waits:
            self._records_waits = True
            self.place.notice(
                "CUDA synchronization events are off, so waits will be inferred. If your torch has "
                "them, pass experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True) "
                "to the profiler."
            )

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Print a failure in one line; the training continues."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  of any torch, any disk, any schedule
            self._excuse(error)

    def _excuse(self, error: Exception) -> None:
        self.place.notice(error if isinstance(error, HTAGraphError | OSError) else repr(error))


def _switch_on_waits() -> bool:
    """Enable CUDA synchronization events in all later profilers; False if this torch cannot."""
    try:
        from torch._C import _profiler  # noqa: PLC0415  torch is no dependency
    except ImportError:
        return False
    switch = getattr(_profiler, "_set_cuda_sync_enabled_val", None)
    if switch is not None:
        switch(True)
    return switch is not None
