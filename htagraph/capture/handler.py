"""`handler`: what `torch.profiler.profile` calls with each trace, so that nothing else is to do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread, main_thread
from typing import Any
from weakref import WeakKeyDictionary

from htagraph.capture.arrivals import Arrivals, ranks_in_words
from htagraph.capture.cycle import Cycle
from htagraph.capture.names import TraceName
from htagraph.capture.notices import answer, say
from htagraph.capture.place import Place
from htagraph.capture.reporting import verdict
from htagraph.capture.trace_file import TraceFile
from htagraph.errors import HTAGraphError

__all__ = ["TraceHandler", "handler"]

_POLL_S = 1.0
_PAGES = ("report.html", "summary.md")
"""What to open of a report, the best first."""


def handler(folder: str | Path, *, report: bool = True, timeout_s: float = 120.0) -> TraceHandler:
    """Handler that has torch.profiler write traces as they should be, and a report at the end.

    Pass it as `on_trace_ready`. Each rank writes one file per cycle, named by rank, first step and
    time, compressed in the background. After the last cycle rank 0 waits for the other ranks,
    writes a report beside the traces, and prints what bounds the run; the training goes on
    meanwhile. Nothing that fails here ends the training: it is said in one line on stderr.

    Make it before the profiler starts: it switches on the recording of waits of CUDA, in all
    profilers of the process, where this torch can.

    Parameters
    ----------
    folder : str or Path
        For the traces and reports of all ranks; it may hold those of other runs.
    report : bool, default=True
        Whether rank 0 reports on the last cycle. If the schedule does not end, or cannot be asked,
        that is the last one before the process ends.
    timeout_s : float, default=120, unit=s
        How long rank 0 waits for the files of the others; then it reports on those that are there.

    Returns
    -------
    TraceHandler

    Examples
    --------
    >>> import tempfile
    >>> import htagraph as hg
    >>> ready = hg.handler(tempfile.mkdtemp())

    With it, ``torch.profiler.profile(schedule=…, on_trace_ready=ready)`` is all there is to do.
    """
    return TraceHandler(
        folder, report=report, timeout_s=timeout_s, records_waits=_switch_on_waits()
    )


class TraceHandler:
    """Writes the trace of each cycle of a profiler, and a report on the last.

    Parameters
    ----------
    timeout_s : float, default=120, unit=s
    records_waits : bool, default=True
        Waits of CUDA are recorded, as far as is known; if not, that is said once.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        report: bool = True,
        timeout_s: float = 120.0,
        records_waits: bool = True,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.report = report
        self.timeout_s = timeout_s
        self._records_waits = records_waits
        self._place = Place.now()
        self._arrivals = Arrivals.after_now(self.folder)
        self._stopped_at: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._n_written: Counter[int | None] = Counter()
        self._latest: TraceFile | None = None

    @property
    def place(self) -> Place:
        """Rank and world size, also if torch.distributed is in use only before, or after."""
        now = Place.now()
        if now.world_size > self._place.world_size:
            self._place = now
        return self._place

    def __call__(self, profiler: Any) -> None:  # noqa: ANN401  torch is no dependency
        """Write the trace of the cycle that a profiler has just ended."""
        with self._unharmed():
            cycle = Cycle.ended(profiler, self._stopped_at.get(profiler, -1))
            self._stopped_at[profiler] = getattr(profiler, "step_num", 0)
            if cycle.n_steps == 0 and self._latest is not None:
                say(f"step {cycle.step} was cut off: there is no trace of it.", self.place)
                return
            self.finish(self.exported(profiler, cycle.step), is_last=cycle.is_last)

    def exported(self, profiler: Any, step: int | None) -> TraceFile | None:  # noqa: ANN401
        """The trace of a cycle that began in a step, not yet compressed; None where that fails."""
        name = TraceName(self.place.rank, step, time.time_ns())
        file = TraceFile(self.folder, name, bool(getattr(profiler, "with_stack", False)))
        try:
            self._say_what_is_missing(profiler)
            file.export(profiler)
            if file.is_cut_off():
                say(
                    f"{name} is cut off, as on a full disk; what there is of it is kept.",
                    self.place,
                )
        except Exception as error:  # noqa: BLE001  of any torch, any disk
            file.discard()
            self._excuse(error)
            return None
        return file

    def finish(self, file: TraceFile | None, *, is_last: bool) -> None:
        """Compress a trace in the background, and report on it if no other comes."""
        if file is None:
            return
        self._n_written[file.name.step] += 1
        self._latest = file
        with self._unharmed():
            # Not a daemon: the process waits for it at its end.
            Thread(
                target=self._finish,
                args=(file, self._n_written[file.name.step], is_last),
                name="htagraph-capture",
            ).start()

    def _finish(self, file: TraceFile, n: int, is_last: bool) -> None:
        """What the thread of a trace does; `n` files that began in its step were written so far."""
        with self._unharmed():
            trace = file.compress()
            if self.report and self.place.rank == 0 and (is_last or self._remains(file)):
                self._report(file, trace, n)

    def _remains(self, file: TraceFile) -> bool:
        """Whether a trace is the latest when the process ends; else, the answer comes earlier."""
        while main_thread().is_alive() and self._latest is file:
            main_thread().join(_POLL_S)
        return self._latest is file

    def _report(self, file: TraceFile, trace: Path, n: int) -> None:
        """Print the verdict on the capture that a trace is of, once all ranks are there."""
        world_size = self.place.world_size
        missing = self._arrivals.missing(
            world_size,
            file.name.step,
            n,
            timeout_s=self.timeout_s,
            meanwhile=self._said_at_the_end(),
        )
        if missing:
            say(
                f"no trace of {ranks_in_words(missing)} came in {self.timeout_s:g} s; the report "
                "is on the others.",
                self.place,
            )
        out = file.name.report(self.folder)
        said = verdict(
            trace,
            self.folder if world_size > 1 else None,
            out,
            stacks=file.with_stack,
            meanwhile=self._said_at_the_end(),
        )
        page = next((out / name for name in _PAGES if (out / name).exists()), out)
        answer(f"\n{said}\n\nThe report: {page}\n")

    def _said_at_the_end(self) -> Callable[[str], None]:
        """What says once, if the training is over, why the process is not."""
        said: list[str] = []

        def say_once(doing: str) -> None:
            if not said and not main_thread().is_alive():
                said.append(doing)
                say(f"{doing} (Ctrl-C to leave)", self.place)

        return say_once

    def _say_what_is_missing(self, profiler: Any) -> None:  # noqa: ANN401
        """Say once if waits of CUDA should be recorded, and are not."""
        used = {str(getattr(one, "name", "")) for one in getattr(profiler, "activities", ())}
        if "CUDA" in used and not self._records_waits:
            self._records_waits = True
            say(
                "this torch cannot be told to record waits of CUDA here; they will be inferred. "
                "Pass experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True) to the "
                "profiler if it takes it.",
                self.place,
            )

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Say in one line what fails here; the training goes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  of any torch, any disk, any schedule
            self._excuse(error)

    def _excuse(self, error: Exception) -> None:
        say(error if isinstance(error, HTAGraphError | OSError) else repr(error), self.place)


def _switch_on_waits() -> bool:
    """Have all profilers to come record waits of CUDA; False where this torch cannot."""
    try:
        from torch._C import _profiler  # noqa: PLC0415  torch is no dependency
    except ImportError:
        return False
    switch = getattr(_profiler, "_set_cuda_sync_enabled_val", None)
    if switch is not None:
        switch(True)
    return switch is not None
