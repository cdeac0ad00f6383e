"""A change of the package on trial: the tests of a fresh clone, then the answers on real traces.

The checkout is copied into a temporary folder, with nothing next to it. A file of the copy is
changed, a forked process runs the tests there, and the file is put back.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mutation.coverage import tests_of
from tests.mutation.edits import CHECKOUT

_ARGUMENTS = (
    *("-qx", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("--doctest-modules", "--doctest-ignore-import-errors", "--import-mode=importlib"),
    *("-m", "not slow", "-W", "ignore:Module already imported"),
)
_LONG_S = 20.0
"""CPU seconds of tests for one change, the likeliest to notice it first; the rest is left out."""

_HANGS_S = 20.0
"""CPU seconds of one test before it counts as hung, plus ten times what it usually takes. Machine
code is compiled anew where its source changed; without a change all of it, in the first test that
calls it."""

_MOST_BYTES = 8 << 30
_LAST = "tests/laws"


@dataclass(frozen=True)
class Outcome:
    """Who noticed a change, a test or a trace, and how; nobody if both are empty."""

    by: str = ""
    how: str = ""

    def __str__(self) -> str:
        return f"{self.how}: {self.by}" if self.by else "NOTHING NOTICED"


Trial = Callable[[str, str], Outcome]
"""Tries a file, named by its path in the checkout, with another source."""


@contextmanager
def bench(paths: list[str], traces: list[Path]) -> Iterator[Trial]:
    """A copy of the checkout, in which the tests of some files pass."""
    settings.register_profile(
        "mutation",
        max_examples=20,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
    )
    with tempfile.TemporaryDirectory() as name:
        made = _Bench(Path(name), traces)
        left_out = shutil.ignore_patterns(".*", "build")
        shutil.copytree(CHECKOUT, made.copy, ignore=left_out)
        made.begin(sorted({test for path in paths for test in tests_of(path)}))
        yield made.tried


@dataclass
class _Bench:
    """The copy in which changes are tried, and what is known of its tests."""

    folder: Path
    traces: list[Path]
    usual: dict[str, float] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    noticed: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def copy(self) -> Path:
        """The copied checkout."""
        return self.folder / "checkout"

    def begin(self, tests: list[str]) -> None:
        """Try no change: all tests pass, and how long each takes and what is answered is kept."""
        outcome = self._outcome("", tests)
        if outcome.by:
            sys.exit((self.folder / "output").read_text() + f"\nwithout a change, {outcome}")
        self.usual, self.answers = json.loads((self.folder / "usual").read_text())
        total_s = sum(self.usual.values())
        print(f"{len(self.usual)} tests ({total_s:.0f} s), {len(self.answers)} answers", flush=True)

    def tried(self, path: str, source: str) -> Outcome:
        """Who notices that the file at `path` has another source."""
        file = self.copy / path
        original, times = file.read_bytes(), file.stat()
        file.write_text(source)
        try:
            outcome = self._outcome(path, tests_of(path))
        finally:
            file.write_bytes(original)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as its .pyc notes
        self.noticed[path, outcome.by] += 1
        return outcome

    def _outcome(self, path: str, tests: list[str]) -> Outcome:
        """How a forked process ended."""
        note = self.folder / "note"
        note.write_text("import")
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            try:
                os._exit(self._run(path, tests, note))
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                os._exit(-1)  # without the cleanup of the process that forked this one
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)  # it, and processes that its tests started
        by = note.read_text()
        if code == 0:
            return Outcome(*json.loads(by))
        return Outcome(by, "killed by" if code == 1 else f"killed by (exit code {code})")

    def _run(self, path: str, tests: list[str], note: Path) -> int:
        """Run the tests and compare answers, in this process; the exit code of pytest."""
        os.setpgid(0, 0)
        _limit(10 * _HANGS_S)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        self._move_in(writes_bytecode=not path)
        before = [name for (of, name), _ in self.noticed.most_common() if of == path]
        alike = [test for test in tests if Path(test).stem == f"test_{Path(path).stem}"]
        room = [str(file.relative_to(self.copy)) for file in self.copy.glob(f"{tests[0]}/*.py")]
        alike += [file for file in room if Path(file).stem == f"test_{Path(path).stem}"]
        watch = _Watch(note, [*before, path, *alike], self.usual)
        code = int(pytest.main([*_ARGUMENTS, *tests], plugins=[watch]))
        if code != 0:
            return code
        if path:
            note.write_text(json.dumps(self._moved(note, before)))
        else:
            answers = {str(trace): _answer(trace) for trace in self.traces}
            (self.folder / "usual").write_text(json.dumps([watch.took, answers]))
            note.write_text("[]")
        return 0

    def _move_in(self, *, writes_bytecode: bool) -> None:
        """Make this process, and those it starts, import from the copy."""
        for name in [*sys.modules]:
            if name.partition(".")[0] in {"tests", "htagraph"}:
                del sys.modules[name]
        os.chdir(self.copy)
        sys.path[:] = [str(self.copy), *(p for p in sys.path if p and Path(p) != CHECKOUT)]
        os.environ |= {
            "PYTHONPATH": str(self.copy),
            "HYPOTHESIS_PROFILE": "mutation",
            "HTAGRAPH_TRACES": str(self.folder / "no traces"),
        }
        sys.dont_write_bytecode = not writes_bytecode

    def _moved(self, note: Path, before: list[str]) -> tuple[str, str]:
        """The first trace whose answer moved, and how."""
        from tests.answers import differences

        for trace in sorted(self.answers, key=lambda trace: trace not in before):
            note.write_text(trace)
            lines = list(differences(self.answers[trace], _answer(Path(trace))))
            if lines:
                return trace, f"answer moved: {lines[0]} and {len(lines) - 1} more"
        return "", ""


class _Watch:
    """A plugin of pytest: orders the tests, notes which one runs and how long each took."""

    def __init__(self, note: Path, first: list[str], usual: dict[str, float]) -> None:
        self.note, self.usual = note, usual
        self.place = {name: place for place, name in enumerate(first)}
        self.took: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """What noticed before first, then files named like the module, then quick files."""
        time_of: Counter[str] = Counter()
        for item in items:
            time_of[_file(item)] += round(1e6 * self.usual.get(item.nodeid, 0.0))

        def key(item: pytest.Item) -> tuple[int, int, bool, int]:
            file, never = _file(item), len(self.place)
            places = self.place.get(item.nodeid, never), self.place.get(file, never)
            return (*places, file.startswith(_LAST), time_of[file])

        items.sort(key=key)
        ends = accumulate(self.usual.get(item.nodeid, 0.0) for item in items)
        items[:] = [item for item, end in zip(items, ends, strict=True) if end < _LONG_S]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run one test, unless it hangs."""
        self.note.write_text(item.nodeid)
        _limit(_HANGS_S + 10 * self.usual.get(item.nodeid, _HANGS_S))
        started = time.process_time()
        result = yield
        self.took[item.nodeid] = time.process_time() - started
        return result


def _answer(trace: Path) -> Any:
    """The answer on a trace, as JSON has it."""
    from tests.answers import answer

    _limit(3 * _HANGS_S)
    return json.loads(json.dumps(answer(trace), default=str))


def _limit(seconds: float) -> None:
    """End this process after so much more CPU time, or ten times that on the clock."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def _file(item: pytest.Item) -> str:
    """The file of a test."""
    return item.nodeid.partition("::")[0]
