"""Predicted savings of late ranks against delays that scripts planted and measured.

``python -m tests.benchmarks.bench_late_ranks [FOLDER …]`` takes the jobs of some folders, by
default those of this repository. ``tests/data/captures/scripts/dist.py`` records more.
"""

from __future__ import annotations

import json
import statistics
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import htagraph as hg
from htagraph.replay.changes import Change
from tests.benchmarks.bench_inference import table
from tests.real_traces import CAPTURES

_TRUTH = "truth_of_the_job.txt"
_OF_LOADERS = ("ddp_loader",)
"""Jobs whose delay is in the loader, so that the script measured it as loading."""
_STAGES = ("pipeline",)
"""A stage that comes late to a send is slow, not late: `equalise` leaves it."""


class Planted(NamedTuple):
    """What a script planted in a job: by rank, in ms of all recorded steps."""

    job: Path
    late_ms: dict[int, float]

    @property
    def change(self) -> Change:
        """The late rank in time, or all ranks where several take turns."""
        return hg.equalise() if len(self.late_ms) > 1 else hg.equalise().on_rank(*self.late_ms)

    @property
    def all_ms(self) -> float:
        """All that was planted."""
        return sum(self.late_ms.values())


def planted(folder: Path) -> Iterator[Planted]:
    """Yield the jobs below a folder in which some rank was made late."""
    for file in sorted(folder.rglob(_TRUTH)):
        truth = json.loads(file.read_text())
        n_steps = len(truth["lateness_after_forward_ms_by_step_and_rank"])
        means = [
            mean.get("planted_ms", mean["next_ms"] if truth["case"] in _OF_LOADERS else 0)
            for mean in truth["mean_per_rank"]
        ]
        most = max(means)
        late = {rank: ms * n_steps for rank, ms in enumerate(means) if 10 * ms > most}
        if most and truth["case"] not in _STAGES:
            yield Planted(file.parent, late)


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    errors, rows = [], list[list[object]]()
    for folder in map(Path, sys.argv[1:] or [str(CAPTURES / "jobs")]):
        for one in planted(folder):
            saves_ns = hg.what_if(hg.load_job(one.job)).rehearsal.saved_ns([one.change])
            errors.append(saves_ns / 1e6 / one.all_ms - 1)
            cells = (f"{one.all_ms:.1f}", f"{saves_ns / 1e6:.1f}", f"{errors[-1]:+.1%}")
            rows.append([one.job.name, str(one.change), *cells])
    print(table(["job", "change", "planted, ms", "predicted, ms", "error"], rows))
    sizes = [abs(error) for error in errors]
    print(
        f"{len(sizes)} jobs: error {statistics.median(sizes):.1%} at the median, at most "
        f"{max(sizes):.1%}; {sum(size > 0.1 for size in sizes)} above 10%"
    )


if __name__ == "__main__":
    main()
