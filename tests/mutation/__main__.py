"""Whether tests notice a change of the package: ``python -m tests.mutation constants|mutants``.

``constants [ROOM …]`` moves each numeric constant of a room to a half and to double, and prints
which test of a fresh clone notices, else which answer on a real trace moves.

``mutants [PATH …] [--sample N] [--seed S]`` plants a fault at a time in files (or on one line:
``PATH:LINE``), and prints how many the tests of a fresh clone notice, and which they do not.

Tests are those of the room, its doctests, and the laws of the path. It takes hours, on one processor.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from random import Random

from tests.mutation.constants import constants
from tests.mutation.edits import Edit
from tests.mutation.operators import faults
from tests.mutation.trial import CHECKOUT, Outcome, bench
from tests.real_traces import FOLDER

_ROOMS = ["compiler", "findings", "replay", "job", "explain", "lookup"]
_TARGETS = [f"htagraph/{name}" for name in ("algorithms", "compiler", "explain", "job/lateness.py")]

_LAWS = ["path_laws", "simulated_paths", "inference", "sync_records", "replay_laws"]
"""Those of the path; the laws of questions take a minute, and see nothing more."""


def move_constants(room: str) -> None:
    """Print who notices that a constant of a room moves."""
    from tests.answers import sources

    with bench(_tests_of(room), list(sources(FOLDER))) as tried:
        n_tried = n_unnoticed = 0
        for path in _files(f"htagraph/{room}"):
            source = (CHECKOUT / path).read_text()
            for constant in constants(source):
                for value, edit in constant.moves():
                    outcome = tried(path, edit.of(source))
                    n_tried += 1
                    n_unnoticed += not outcome.by
                    where = f"{path}:{edit.line} {constant.name}"
                    print(f"{where} {constant.value} -> {value}  {outcome}", flush=True)
        print(f"{room}: of {n_tried} moves nothing notices {n_unnoticed}", flush=True)


def plant_faults(place: str, n_faults: int, seed: int) -> None:
    """Print which faults in some files no test notices."""
    target, _, line = place.partition(":")
    planted = [
        (path, edit)
        for path in _files(target)
        for edit in faults((CHECKOUT / path).read_text())
        if edit.line == int(line or edit.line)
    ]
    sample = Random(seed).sample(planted, min(n_faults, len(planted)))
    sample.sort(key=lambda one: (one[0], one[1].line))
    outcomes: list[Outcome] = []
    with bench(_tests_of(Path(target).relative_to("htagraph").parts[0]), []) as tried:
        for path, edit in sample:
            source = (CHECKOUT / path).read_text()
            outcomes.append(tried(path, edit.of(source)))
            print(f"{path}:{edit.line} {outcomes[-1]}\n{_difference(source, edit)}", flush=True)
    alive = [outcome for outcome in outcomes if outcome.by != "import"]
    n_killed = sum(bool(outcome.by) for outcome in alive)
    share = n_killed / max(len(alive), 1)
    print(f"{place}: {n_killed} of {len(alive)} killed, {share:.0%}; of {len(planted)} in all")


def _files(target: str) -> list[str]:
    """A file, or the modules of a folder."""
    path = CHECKOUT / target
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [str(file.relative_to(CHECKOUT)) for file in found]


def _tests_of(room: str) -> list[str]:
    """What pytest runs of a room."""
    return [f"tests/{room}", f"htagraph/{room}", *(f"tests/laws/test_{law}.py" for law in _LAWS)]


def _difference(source: str, edit: Edit) -> str:
    """The lines that a fault changes, before and after."""
    before, after = source.splitlines(), edit.of(source).splitlines()
    first, last = edit.line - 1, len(before) - (edit.node.end_lineno or 0)
    removed = [f"    - {line.strip()}" for line in before[first : len(before) - last]]
    return "\n".join(removed + [f"    + {line.strip()}" for line in after[first : len(after) - last]])


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
    os.nice(15)
    if options.command == "constants":
        for room in options.rooms:
            move_constants(room)
    else:
        for place in options.places:
            plant_faults(place, options.sample, options.seed)


if __name__ == "__main__":
    main()
