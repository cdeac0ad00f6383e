"""Speed and memory at several sizes, htagraph and HTA: ``python -m tests.benchmarks --out FOLDER``.

``[--sizes 20 100 500 1400] [--runs 3] [--hta PYTHON …] [--history]``: sizes are megabytes of JSON,
of traces that are made in the folder, of a real one (`tests.benchmarks.tiles`). Every run of this
package and of HTA has processes of its own, and they take turns. PYTHON is an interpreter that has
HTA (``pip install traceinsight``); without one, the tables are of this package alone. Nothing is
fetched.

Writes ``speed.json`` (all runs), ``speed.md`` (tables) and ``speed.svg`` (a picture). What the
folder has of other sizes stays, so that a large size can be measured when the machine is quiet.
``--history`` puts the ratios of this version into ``tests/benchmarks/history.csv``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import htagraph
from tests.benchmarks.rounds import contenders, rounds
from tests.benchmarks.speed_picture import picture
from tests.benchmarks.speed_table import (
    Measured,
    command_table,
    cpu_table,
    history,
    ratio_table,
    time_table,
)
from tests.benchmarks.tiles import write_tiled

HISTORY = Path(__file__).with_name("history.csv")


def write(measured: Measured, folder: Path) -> None:
    """Write the runs, the tables and the picture."""
    (folder / "speed.json").write_text(json.dumps(measured, indent=1) + "\n")
    tables = {
        "Seconds on the wall, and peak memory": time_table(measured),
        "Seconds of CPU": cpu_table(measured),
        "Whole processes": command_table(measured),
        "Times less than others": ratio_table(measured),
    }
    text = "\n".join(f"{title}:\n\n{table}\n" for title, table in tables.items() if table)
    (folder / "speed.md").write_text(text)
    (folder / "speed.svg").write_text(picture(measured))
    print(text)


def main() -> None:
    """Measure, and write after each round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 100, 500, 1400])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--hta", nargs="+", default=[], metavar="PYTHON")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--history", action="store_true")
    asked = parser.parse_args()
    store = asked.out / "speed.json"
    measured: Measured = json.loads(store.read_text()) if store.exists() else {}
    for size in asked.sizes:
        trace = write_tiled(asked.out, size)
        for runs in rounds(trace, contenders(asked.hta), asked.runs):
            measured[str(size)] = runs
            measured = dict(sorted(measured.items(), key=lambda one: int(one[0])))
            write(measured, asked.out)
    if asked.history:
        before = HISTORY.read_text() if HISTORY.exists() else ""
        HISTORY.write_text(history(measured, htagraph.__version__, before))


if __name__ == "__main__":
    main()
