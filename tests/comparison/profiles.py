"""Runs for tests: profiles of given steps, and simulated runs that are slowed down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import htagraph as hg
from htagraph.comparison.profiling import reduced
from htagraph.comparison.run_profile import Kind, Part, RunProfile
from tests.synth.program import Launch, Spend
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def profile(
    bounds: Mapping[str, Sequence[int]], kernels: Mapping[str, Sequence[int]] | None = None,
    *, calls: int = 1, top: int = 99, has_first: bool = False, kind: Sequence[int] = (),
    operators: Mapping[str, Sequence[int]] | None = None, **more: Any,
) -> RunProfile:  # fmt: skip
    """The profile of a run whose steps took so long by bound, and by kernel."""
    steps = np.sum(list(bounds.values()), axis=0)
    n = len(steps)
    of_kind = np.array(kind or [0] * n, dtype=np.int64)
    whole = pd.DataFrame(
        {"row": range(n), "bound": "", "name": "step", "calls": 1, "dur_ns": steps}
    )

    def parts(part: str, groups: Mapping[str, Sequence[int]]) -> list[Part]:
        rows = [
            (row, group if part in ("bound", "op", "name") else "", group, calls, dur_ns)
            for group, lengths in groups.items()
            for row, dur_ns in enumerate(lengths)
        ]
        frame = pd.DataFrame(rows, columns=["row", "bound", "name", "calls", "dur_ns"])
        return reduced(frame, part, of_kind, top=top) if rows else []

    counts = np.bincount(of_kind).tolist()
    known = {
        "name": "run",
        "unit": "step",
        "devices": "",
        "world_size": 0,
        "n_ranks": 1,
        "n_steps": n,
        "kinds": tuple(Kind(each, each, has_first=has_first) for each in counts),
        "steps_ns": tuple(steps.tolist()),
        "n_odd": 0,
        "left_out": (),
    } | more
    return RunProfile(
        parts=(
            *reduced(whole, "step", of_kind, top=1),
            *(one for part in ("bound", "op", "name") for one in parts(part, bounds)),
            *parts("kernel", kernels or {}),
            *parts("operator", operators or {}),
        ),
        **known,
    )


def slowed(action: Any, *, kernel: str = "", under: str = "", by: float = 1.0) -> Any:
    """An action of a program whose kernels of a name, or host time below a range, take longer."""
    if isinstance(action, Launch) and action.work.name == kernel:
        return replace(action, work=replace(action.work, dur_ns=round(action.work.dur_ns * by)))
    if isinstance(action, Spend) and under == "*":
        return replace(action, dur_ns=round(action.dur_ns * by))
    if not hasattr(action, "body"):
        return action
    inside = "*" if under and getattr(action, "name", "").startswith(under) else under
    body = tuple(slowed(one, kernel=kernel, under=inside, by=by) for one in action.body)
    return replace(action, body=body)


def steady_loader(action: Any, *, dur_ns: int) -> Any:
    """An action of a program whose data loader always takes as long."""
    if isinstance(action, Spend):
        return replace(action, dur_ns=dur_ns)
    if getattr(action, "name", "").startswith("enumerate(DataLoader)"):
        return replace(action, body=tuple(steady_loader(one, dur_ns=dur_ns) for one in action.body))
    if getattr(action, "name", "").startswith("ProfilerStep"):
        loads = (
            steady_loader(one, dur_ns=dur_ns) if hasattr(one, "name") else one
            for one in action.body
        )
        return replace(action, body=tuple(loads))
    return action


def simulated(seed: int, *, steps: int = 3, fault: Any = "none", loader_ns: int = 0, **slow: Any):
    """The program of a training rank as it runs once, slowed down or not."""
    program = training_rank(steps=steps, fault=fault, seed=seed)
    body = program.body
    if loader_ns:
        body = tuple(steady_loader(one, dur_ns=loader_ns) for one in body)
    if slow:
        body = tuple(slowed(one, **slow) for one in body)
    return simulate(replace(program, body=body))


def run(seed: int, **options: Any) -> RunProfile:
    """The profile of such a run."""
    return hg.run_profile(hg.Trace.from_events(simulated(seed, **options).events))
