"""Stacks for viewers of flame graphs: collapsed text, and JSON of speedscope."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from htagraph.model.symbols import SymbolTable
from htagraph.writers.output_file import write_text

BELOW = ";"
"""Between the names of a stack."""
SPEEDSCOPE = ".speedscope.json"


def write_flame(out: str | Path, flame: pd.DataFrame, title: str) -> None:
    """Write rows of schema `frames.FLAME`: as JSON if the name ends so, else a line for each."""
    stacks, dur_ns = flame["stack"].tolist(), flame["dur_ns"].tolist()
    if not Path(out).name.removesuffix(".gz").endswith(SPEEDSCOPE):
        lines = (f"{stack} {time_ns}\n" for stack, time_ns in zip(stacks, dur_ns, strict=True))
        write_text(out, "".join(lines))
        return
    # In the order of names: its first view joins only neighbours.
    rows = sorted(zip((stack.split(BELOW) for stack in stacks), dur_ns, strict=True))
    table, codes = SymbolTable.intern(name for stack, _ in rows for name in stack)
    found = iter(codes.tolist())
    samples = [[next(found) for _ in stack] for stack, _ in rows]
    profile = {"type": "sampled", "name": title, "unit": "nanoseconds", "startValue": 0}
    profile |= {"endValue": sum(dur_ns), "samples": samples, "weights": [ns for _, ns in rows]}
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": name} for name in table.texts]},
        "profiles": [profile],
    }
    write_text(out, json.dumps(document))
