"""Stacks for viewers of flame graphs: collapsed text, and JSON of speedscope."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from htagraph.model.symbols import SymbolTable
from htagraph.writers.output_file import write_text

BELOW = ";"
"""Between the names of a stack; `Stacks.flame` writes it so."""
SPEEDSCOPE = ".speedscope.json"


def write_flame(out: str | Path, flame: pd.DataFrame, title: str) -> Path:
    """Write rows of schema `frames.FLAME`: as JSON if the name ends so, else a line for each."""
    path, rows = Path(out), flame[["stack", "dur_ns"]].to_numpy(object).tolist()
    if not path.name.removesuffix(".gz").endswith(SPEEDSCOPE):
        write_text(path, "".join(f"{stack} {dur_ns}\n" for stack, dur_ns in rows))
        return path
    stacks = [stack.split(BELOW) for stack, _ in rows]
    table, codes = SymbolTable.intern(name for stack in stacks for name in stack)
    found = iter(codes.tolist())
    profile = {
        "type": "sampled",
        "name": title,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": int(flame["dur_ns"].sum()),
        "samples": [[next(found) for _ in stack] for stack in stacks],
        "weights": [dur_ns for _, dur_ns in rows],
    }
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "htagraph",
        "name": title,
        "shared": {"frames": [{"name": name} for name in table.texts]},
        "profiles": [profile],
    }
    write_text(path, json.dumps(document))
    return path
