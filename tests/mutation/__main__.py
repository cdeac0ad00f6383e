"""Whether tests notice a change of the package: ``python -m tests.mutation constants|mutants``.

``constants [ROOM …]`` moves each numeric constant of a room to a half and to double, and prints
which test of a fresh clone notices, else which answer on a small real trace moves.

``mutants [PATH …] [--sample N] [--seed S]`` plants one fault after another in files, or on a line
(``PATH:LINE``), and prints how many the tests of a fresh clone notice, and which they do not.

`tests_of` says which tests; those that noticed something before and quick ones run first, for 20 s
at most, and none that is marked slow. Both commands take hours of one processor: run them nicely.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from random import Random

from tests.answers import sources
from tests.mutation.constants import constants
from tests.mutation.coverage import files
from tests.mutation.edits import CHECKOUT, Edit
from tests.mutation.operators import faults
from tests.mutation.trial import Outcome, bench
from tests.public_traces import FOLDER
from tests.real_traces import CAPTURES

_ROOMS = ["compiler", "findings", "replay", "job", "explain", "lookup"]
_TARGETS = [f"htagraph/{name}" for name in ("algorithms", "compiler", "explain", "job/lateness.py")]

_SMALL = 800_000
"""Bytes of a trace whose answer takes a fraction of a second."""


def move_constants(room: str) -> None:
    """Print who notices that a constant of a room moves."""
    paths = [path for path in files(f"htagraph/{room}") if [*constants(_source(path))]]
    n_tried = n_unnoticed = 0
    with bench(paths, _sample()) as tried:
        for path in paths:
            for constant in constants(_source(path)):
                for value, edit in constant.moves():
                    outcome = tried(path, edit.of(_source(path)))
                    n_tried += 1
                    n_unnoticed += not outcome.by
                    where = f"{path}:{edit.line} {constant.name}"
                    print(f"{where} {constant.value} -> {value}  {outcome}", flush=True)
    print(f"{room}: of {n_tried} moves nothing notices {n_unnoticed}", flush=True)


def plant_faults(place: str, n_faults: int, seed: int) -> None:
    """Print which faults in some files no test notices."""
    target, _, line = place.partition(":")
    every = [(path, edit) for path in files(target) for edit in faults(_source(path))]
    planted = [(path, edit) for path, edit in every if edit.line == int(line or edit.line)]
    sample = Random(seed).sample(planted, min(n_faults, len(planted)))  # noqa: S311
    sample.sort(key=lambda one: (one[0], one[1].line))
    outcomes: list[Outcome] = []
    with bench([path for path, _ in sample], []) as tried:
        for path, edit in sample:
            outcomes.append(tried(path, edit.of(_source(path))))
            print(f"{path}:{edit.line}  {outcomes[-1]}", flush=True)
            print(_difference(_source(path), edit), flush=True)
    alive = [outcome for outcome in outcomes if outcome.by != "import"]
    n_killed = sum(bool(outcome.by) for outcome in alive)
    share = n_killed / max(len(alive), 1)
    print(f"{place}: {n_killed} of {len(alive)} killed, {share:.0%}; {len(planted)} in all")
    print(f"not counted: {len(outcomes) - len(alive)} that no import survives", flush=True)


def _source(path: str) -> str:
    """What a file of the checkout says."""
    return (CHECKOUT / path).read_text()


def _sample() -> list[Path]:
    """The smallest real trace, and the smallest job, of the folders of each name."""
    size = {source: _bytes(source) for folder in (FOLDER, CAPTURES) for source in sources(folder)}
    found = sorted((each for each in size if size[each] < _SMALL), key=size.__getitem__)
    return list({(each.parent.name, each.is_dir()): each for each in reversed(found)}.values())


def _bytes(source: Path) -> int:
    """The size of a trace, or of all traces of a job."""
    files = [source] if source.is_file() else source.iterdir()
    return sum(file.stat().st_size for file in files)


def _difference(source: str, edit: Edit) -> str:
    """The lines that a fault changes, before and after."""
    before, after = source.splitlines(), edit.of(source).splitlines()
    first, n_below = edit.line - 1, len(before) - (edit.node.end_lineno or 0)
    lines = [f"    - {line.strip()}" for line in before[first : len(before) - n_below]]
    lines += [f"    + {line.strip()}" for line in after[first : len(after) - n_below]]
    return "\n".join(lines)


def main() -> None:
    """Change the package, a thing at a time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    of_constants = commands.add_parser("constants")
    of_constants.add_argument("rooms", nargs="*", metavar="ROOM", default=_ROOMS)
    of_mutants = commands.add_parser("mutants")
    of_mutants.add_argument("places", nargs="*", metavar="PATH", default=_TARGETS)
    of_mutants.add_argument("--sample", type=int, default=150, help="faults of each PATH")
    of_mutants.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no process, nor folder
    if options.command == "constants":
        for room in options.rooms:
            move_constants(room)
    else:
        for place in options.places:
            plant_faults(place, options.sample, options.seed)


if __name__ == "__main__":
    main()
