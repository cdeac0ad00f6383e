"""What Python code every thread runs, sampled while a profiler records, and written into its trace.

A thread of its own reads the stacks of all others every millisecond. A sample is late if another
thread held the interpreter's lock (GIL), as C code may do for long; how late is kept, because that
time is the sample's. Samples of a thread that does not move are one row with a weight. The trace
gets them as ``stackFrames`` and ``samples``, as Chrome's trace event format defines them. Nothing
here ends a run: an error ends the sampling, and is a note in the trace.
"""

from __future__ import annotations

import ast
import dis
import gc
import io
import json
import linecache
import os
import re
import sys
import sysconfig
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice, starmap, tee
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

_SWITCH_S = 0.0005
"""How long a thread waits until it asks for the GIL, a tenth of Python's default: else C code that
holds it loses time to what runs next (19% of the window, so 7%)."""

_PARTS = 33
"""Samples take at most one part in so many of the time (chosen, 3%: other threads lose about as
much again by waiting for the GIL): of many threads, they are rarer. Pinned by `test_sampler.py`, as
are the next three."""

_MOST_RUNS = 300_000
"""Runs of equal samples that are kept, 20 MB: 30 s of ten threads that all move every ms."""

_MOST_FRAMES = 2_000_000
"""Frames of different stacks that are kept, 50 MB."""

_MOST_NODES = 200_000
"""Frames that are written: a value of more than 64 MiB is refused by htagraph's reader."""

_LONGEST_S = 1.0
"""How long the run waits for the last sample (chosen); with hundreds of threads one may take so."""

_COLUMNS = 8
"""Of a run: thread, stack, time of the first and last sample, how late the first one was, CPU clock
of the thread at both, and how many samples."""

_GC_BREAKS = sys.version_info < (3, 12)
"""Whether reading any frame may collect garbage: then others run on, and what is read is gone (the
process crashes), or it waits for itself (python/cpython#106883)."""

_SEARCHED = 1 << 20
"""Bytes at each end of a trace that are searched for its base time (chosen)."""

_BASE_TIME = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(-?\d+)')
_TO_LIBRARY = re.compile(
    r"^.*[/\\](?=(?:site|dist)-packages[/\\])|^.*?[/\\](?=lib[/\\]python\d[\d.]*[/\\])"
)
_LONGEST = 60
"""Characters of the name of a called function (chosen): as long as a line of a report has room."""


def _clocks() -> dict[int, int]:
    """CPU clock of each thread that runs Python, by ident.

    One call into C, during which none of them can end: asking for the clock of an ended thread may
    crash the process.
    """
    idents, same = tee(chain.from_iterable(starmap(sys._current_frames, [()])))  # noqa: SLF001
    return dict(zip(idents, map(time.pthread_getcpuclockid, same), strict=True))


class Sampler:
    """Samples of one recording, from `start` to `stop`.

    Parameters
    ----------
    interval_ms : float, default=1, unit=ms
        Between samples; more, if a sample takes more than 3% of it.

    Examples
    --------
    >>> sampler = Sampler()
    >>> sampler.start()
    >>> time.sleep(0.01)
    >>> sampler.stop()
    >>> sampler.n_samples > 0
    True
    """

    def __init__(self, interval_ms: float = 1.0) -> None:
        self.interval_ms = interval_ms
        self.n_samples = 0
        self.note = ""  # Why sampling ended early
        self._runs = array("q")
        self._open: dict[int, list[int]] = {}  # The run of each thread, by ident
        self._stacks: dict[tuple[int, ...], int] = {}  # Ids of code, then places, innermost first
        self._n_frames = 0
        self._codes: dict[int, CodeType] = {}  # Of all stacks, by id: hashing code takes long
        self._threads: dict[int, tuple[int, int]] = {}  # Native id and CPU clock, by ident
        self._names: dict[int, str] = {}  # By native id
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="htagraph-sampler", daemon=True)
        self._pid = os.getpid()
        self._switch_s = sys.getswitchinterval()
        self._short_s = min(self._switch_s, _SWITCH_S)
        self._is_gc_off = False

    def start(self) -> None:
        """Begin to sample; never where threads run in parallel, whose stacks cannot be read."""
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            self.note = "Python runs without a GIL: its stacks cannot be sampled"
            return
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self.note = f"sampling could not begin: {error}"
            return
        sys.setswitchinterval(self._short_s)
        _RUNNING.add(self)

    def stop(self) -> None:
        """End sampling, in the process in which it began."""
        self._is_stopped = True
        if self in _RUNNING:
            self._thread.join(_LONGEST_S)
            self.restore()

    def restore(self) -> None:
        """Undo what sampling changed; in a forked process no thread does."""
        _RUNNING.discard(self)
        if sys.getswitchinterval() == self._short_s:
            sys.setswitchinterval(self._switch_s)
        if self._is_gc_off:
            gc.enable()

    def _run(self) -> None:
        try:
            self._sample()
        except BaseException as error:  # noqa: BLE001  whatever it is, the training runs
            self.note = f"sampling ended early: {error!r}"
        with suppress(BaseException):
            for run in self._open.values():
                self._runs.extend(run)
            self._open.clear()

    def _sample(self) -> None:
        """Take samples until stopped, or until there is no room for more."""
        own, interval_ns = threading.get_ident(), max(round(self.interval_ms * 1e6), 1)
        planned, cost_ns = time.monotonic_ns(), 0
        while True:
            time.sleep(max(planned - time.monotonic_ns(), 0) / 1e9)
            if self._is_stopped:  # meanwhile: this would see how the profiler stops
                return
            began, used_ns = time.monotonic_ns(), time.thread_time_ns()
            # Threads that want the GIL meanwhile wait as long as ever: changing hands is slow.
            is_short = sys.getswitchinterval() == self._short_s
            if is_short:
                sys.setswitchinterval(self._switch_s)
            self._is_gc_off = _GC_BREAKS and gc.isenabled()
            if self._is_gc_off:
                gc.disable()
            try:
                self._take(own, max(began - planned, 0))
            finally:
                if self._is_gc_off:
                    gc.enable()
                self._is_gc_off = False
                if is_short:
                    sys.setswitchinterval(self._short_s)
            self.n_samples += 1
            # By its CPU clock: after each sample that was interrupted, there would be a gap.
            used_ns = time.thread_time_ns() - used_ns
            # One that took long met threads, or collected garbage, as others would have done. A
            # coarse clock may say that it took nothing.
            cost_ns = min(used_ns, 2 * max(cost_ns, interval_ns // _PARTS))
            missed = (time.monotonic_ns() - planned) // interval_ns
            planned = max(planned + (missed + 1) * interval_ns, began + _PARTS * cost_ns)
            if len(self._runs) > _COLUMNS * _MOST_RUNS or self._n_frames > _MOST_FRAMES:
                self.note = "sampling ended early: the stacks changed too often to keep them all"
                return

    def _meet(self, frames: Iterable[int]) -> None:
        """Learn the native ids, clocks and names of threads; on Linux a clock tells its thread."""
        clocks: dict[int, int] = {}
        with suppress(OSError):
            clocks = _clocks() if sys.platform == "linux" else clocks
        for ident in frames:
            known = getattr(threading, "_active", {}).get(ident)
            clock = clocks.get(ident, 0)
            native = ~(clock >> 3) if clock else getattr(known, "native_id", None) or ident
            self._threads[ident] = native, clock
            self._names[native] = getattr(known, "name", "")

    def _take(self, own: int, late_ns: int) -> None:
        """Take one sample of all threads but the sampler's."""
        frames, now = sys._current_frames(), time.time_ns()  # noqa: SLF001  there is no other way
        if not frames.keys() <= self._threads.keys():
            self._meet(frames)
        for ident in self._open.keys() - frames.keys():
            self._end(ident)
        for ident, frame in frames.items():
            if ident == own:
                continue
            native, clock = self._threads[ident]
            run = self._open.get(ident)
            try:
                cpu_ns = time.clock_gettime_ns(clock) if clock else -1
            except OSError:  # the thread ended, and another one has its ident
                self._end(ident)
                del self._threads[ident]
                continue
            if run is None or run[6] != cpu_ns or not clock:
                stack = self._stack(frame)
                if run is None or run[1] != stack:
                    self._runs.extend(run or ())
                    self._open[ident] = [native, stack, now, now, late_ns, cpu_ns, cpu_ns, 1]
                    continue
            run[3], run[6] = now, cpu_ns
            run[7] += 1

    def _stack(self, frame: FrameType | None) -> int:
        """The number of a stack."""
        codes: list[CodeType] = []
        places: list[int] = []
        while frame is not None:
            codes.append(frame.f_code)
            places.append(frame.f_lasti)
            frame = frame.f_back
        n = len(self._stacks)
        number = self._stacks.setdefault((*map(id, codes), *places), n)
        if number == n:
            self._n_frames += len(codes)
            self._codes.update(zip(map(id, codes), codes, strict=True))
        return number

    def _end(self, ident: int) -> None:
        """End what a thread ran: from now on it runs no Python, which is a run without a stack."""
        if run := self._open.pop(ident, None):
            now = time.time_ns()
            self._runs.extend((*run, run[0], -1, now, now, 0, -1, -1, 1))

    def write_into(self, path: str | os.PathLike[str]) -> None:
        """Add the samples to a trace that is complete and not compressed; if that fails, a note.

        Raises
        ------
        OSError
            If the disk is full, or the file is gone. The trace is left as it was.
        """
        if self._thread.is_alive():
            self._thread.join(_LONGEST_S)
        with open(path, "r+b") as file:  # noqa: PTH123
            end = max(file.seek(0, io.SEEK_END) - _SEARCHED, 0)
            file.seek(end)
            tail = file.read().rstrip()
            file.seek(0)
            head = file.read(_SEARCHED).lstrip()
            is_whole = head.startswith(b"{") and tail.endswith(b"}")
            if not is_whole or not (self._runs or self.note):
                return
            end += len(tail) - 1
            base = _BASE_TIME.search(head) or _BASE_TIME.search(tail)
            file.seek(end)
            try:
                parts = self._parts(int(base[1]) if base else 0)
                file.writelines(part.encode("utf-8", "replace") for part in parts)
            except Exception as error:
                file.seek(end)
                file.truncate()
                if isinstance(error, OSError):
                    file.write(b"}")
                    raise
                about = json.dumps({"note": f"the samples could not be written: {error!r}"})
                file.write(f',\n"sampler": {about}}}\n'.encode())

    def _parts(self, base_time_ns: int) -> Iterator[str]:
        """Yield the end of the trace."""
        tree = _Tree(self._codes)
        nodes = [tree.node(stack) for stack in self._stacks]
        enters = [tree.enters(stack) for stack in self._stacks]
        yield ',\n"stackFrames": {' + ",\n".join(tree.written) + '},\n"samples": ['
        every = range(0, len(self._runs), _COLUMNS)
        rows = [(self._runs[run + 2], False, run) for run in every]
        rows += [(self._runs[run + 3], True, run) for run in every if self._runs[run + 7] > 1]
        before = ""
        for at, is_last, run in sorted(row for row in rows if row[0] >= base_time_ns):
            thread, stack, _, _, late_ns, *cpu_ns, n = self._runs[run : run + _COLUMNS]
            us, ns = divmod(at - base_time_ns, 1000)
            found = {
                "sf": nodes[stack] if stack >= 0 else -1,
                "late": 0 if is_last else late_ns // 1000,
                "enters": int(stack >= 0 and enters[stack]),
                "weight": n - 1 if is_last else 0,
                "cpu_us": cpu_ns[is_last] // 1000,
            }
            given = "".join(f',"{key}":{value}' for key, value in found.items() if value > 0)
            yield f'{before}\n{{"tid":{thread},"ts":{us}.{ns:03}{given}}}'
            before = ","
        about = {"name": "htagraph", "interval_ms": self.interval_ms, "pid": self._pid}
        about |= {"note": self.note} if self.note else {}
        about |= {"threads": self._names, "files": tree.files}
        yield f'\n],\n"sampler": {json.dumps(about)}}}\n'


class _Tree:
    """The frames of all stacks, each below the line that calls it; ids count from 1."""

    def __init__(self, codes: dict[int, CodeType]) -> None:
        self.written: list[str] = []
        self.files: dict[str, str] = {}  # Whole paths by the short ones in names
        self._codes = codes
        self._ids: dict[tuple[int, int | str, int], int] = {}
        self._calls: dict[tuple[int, int], tuple[int, str]] = {}  # By code and place
        self._short: dict[str, str] = {}

    def node(self, stack: tuple[int, ...]) -> int:
        """The id of the innermost frame of a stack: the function called, if it is no Python."""
        node, line, name = 0, 0, ""
        n = len(stack) // 2
        for at in zip(reversed(stack[:n]), reversed(stack[n:]), strict=True):
            node = self._below(node, at[0], line)
            if at not in self._calls:
                self._calls[at] = self._call(*at)
            line, name = self._calls[at]
        return self._below(node, f"<{name}>", line) if name else node

    def enters(self, stack: tuple[int, ...]) -> bool:
        """Whether the innermost frame has only begun, so that who held the GIL ran before it."""
        n = len(stack) // 2
        at = stack[n]
        return at < 0 or dis.opname[self._codes[stack[0]].co_code[at]] == "RESUME"

    def _below(self, parent: int, what: int | str, line: int) -> int:
        """The id of a frame below another one, of the number of its code, or what C code runs."""
        key = parent, what, line
        if key not in self._ids:
            if len(self._ids) >= _MOST_NODES:
                return parent
            self._ids[key] = len(self._ids) + 1
            native = {"name": what, "category": "native"}
            frame = native if isinstance(what, str) else self._named(self._codes[what])
            frame |= {"parent": str(parent), "line": line} if parent else {}
            self.written.append(f'"{self._ids[key]}":{json.dumps(frame)}')
        return self._ids[key]

    def _named(self, code: CodeType) -> dict[str, Any]:
        """A frame of Python: file without its search path, as others write it, line, function."""
        path = code.co_filename
        if path not in self._short:
            whole = path if path.startswith("<") else os.path.abspath(path)  # noqa: PTH100
            short = _TO_LIBRARY.sub("", whole, count=1)
            if short == whole:
                roots = (os.path.abspath(root) + os.sep for root in sys.path)  # noqa: PTH100
                fits = [root for root in roots if whole.startswith(root)]
                short = whole.removeprefix(max(fits, key=len, default=""))
            self._short[path] = short
            self.files[short] = whole
        short = self._short[path]
        is_library = short.startswith("<") or _TO_LIBRARY.match(self.files[short]) is not None
        name = f"{short}({code.co_firstlineno}): {code.co_qualname}"
        return {"name": name, "category": "library" if is_library else "user"}

    def _call(self, number: int, at: int) -> tuple[int, str]:
        """The line that runs, and what it calls there, as it is written: ``time.sleep``."""
        code = self._codes[number]
        if at < 0:  # it has not begun
            return code.co_firstlineno, ""
        line, last_line, start, end = next(islice(code.co_positions(), at // 2, None))
        if line is None or last_line is None or start is None or end is None:
            return line or code.co_firstlineno, ""
        operation = dis.opname[code.co_code[at]]
        enters = operation.startswith("BEFORE_")
        if enters and last_line > line:  # until 3.12, all of a `with` has its place
            last_line, end = line, None
        if not operation.startswith(("BEFORE_", "CALL", "PRECALL")):  # 3.11 calls C in PRECALL
            return line, ""
        lines = [one.encode() for one in linecache.getlines(code.co_filename)[line - 1 : last_line]]
        if not lines:
            return line, ""
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        name = _called(b"".join(lines).decode("utf-8", "replace"), enters=enters)
        return line, name if len(name) <= _LONGEST else name.rpartition(".")[2][-_LONGEST:]


def _called(source: str, *, enters: bool) -> str:
    """What a call calls, or a ``with`` enters or leaves; empty if that is no name."""
    for text in (f"({source})", f"{source}\n pass", source):
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            found = ast.parse(text).body[0]
            what: object = getattr(found, "value", None)
            if isinstance(found, ast.With | ast.AsyncWith):
                what = found.items[0].context_expr
            if isinstance(what, ast.Call) and not enters:
                return ast.unparse(what.func)
            if isinstance(what, ast.Name | ast.Attribute | ast.Call):
                return f"with {ast.unparse(what)}"
            break
    return ""


_OWNERS: WeakKeyDictionary[object, float] = WeakKeyDictionary()
_STATE: dict[str, Sampler] = {}
_RUNNING: WeakSet[Sampler] = WeakSet()


def sample_recordings(owner: object, interval_ms: float) -> None:
    """Sample whatever torch's profilers record while an object lives, if this torch tells when."""
    from torch.autograd import profiler  # noqa: PLC0415  torch is no dependency

    _OWNERS[owner] = interval_ms
    for name, then in (("_run_on_profiler_start", _begin), ("_run_on_profiler_stop", _finish)):
        told = getattr(profiler, name, None)
        if told is not None and not hasattr(told, "told"):

            def both(told: Callable[[], None] = told, then: Callable[[], None] = then) -> None:
                with suppress(Exception):  # torch calls it: the run must not see it
                    then()
                told()

            both.told = told  # type: ignore[attr-defined]
            setattr(profiler, name, both)


def _begin() -> None:
    """Sample when a profiler begins to record, and have the trace say where it runs."""
    from torch import __version__, autograd  # noqa: PLC0415  torch is no dependency

    _finish()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    told = json.dumps({"torch": __version__, "cores": cores})
    autograd._add_metadata_json("htagraph", told)  # noqa: SLF001  of any profiler
    _STATE.pop("done", None)
    if interval_ms := min((one for one in _OWNERS.values() if one > 0), default=0.0):
        _STATE["running"] = Sampler(interval_ms)
        _STATE["running"].start()


def _finish() -> None:
    """End the samples when a profiler has stopped."""
    if sampler := _STATE.pop("running", None):
        sampler.stop()
        _STATE["done"] = sampler


def samples_of_latest() -> Sampler | None:
    """The samples of the latest recording, once."""
    return _STATE.pop("done", None)


def _after_fork() -> None:
    """Sample no more in a child: only the thread that forked is in it."""
    _STATE.clear()
    for sampler in list(_RUNNING):
        sampler.restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
