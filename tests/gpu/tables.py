"""Markdown of what was measured, recorded and predicted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_FAST_ENOUGH = 0.2
"""Share of a step that must be saved, or cost, before an error is a share of it."""


def markdown(results: Mapping[str, Any]) -> str:
    """All tables."""
    lines = [f"# {results['device']}, PyTorch {results['torch']}", ""]
    for part, rows in (
        ("roofs", _roofs),
        ("operators", _operators),
        ("handling", _counts),
        ("graphs", _graphs),
        ("pairs", _pairs),
        ("sampling", _counts),
    ):
        found = results["parts"].get(part, {})
        if found.get("rows") or "error" in found:
            lines += [f"## {part.capitalize()}", ""]
        if found.get("rows"):
            lines += [*_table(list(rows(found["rows"]))), ""]
        if "error" in found:
            lines += ["```", found["error"].rstrip(), "```", ""]
    seconds = ", ".join(f"{part} {s:.0f} s" for part, s in results["seconds"].items())
    return "\n".join([*lines, f"Took: {seconds}.", ""])


def _table(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{' --- |' * len(rows[0])}"
    for row in rows:
        yield f"| {' | '.join(row.values())} |"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0%}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"


def _roofs(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for row in rows:
        yield {
            "limit": row["roof"],
            "measured, T/s": _number(row["tera_per_s"]),
            "of the peak": _share(row["share"]),
            "by the trace, T/s": _number(row["traced_tera_per_s"]),
            "time at the roof": _share(row["traced_share"]),
        }


def _operators(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for row in rows:
        low, high = (one / 1e6 for one in row["found_bytes"])
        yield {
            "operator": row["operator"],
            "GFLOP": f"{row['gflop']:.6g}",
            "found": f"{row['found_gflop']:.6g}",
            "MB": f"{row['bytes'] / 1e6:.6g}",
            "found MB": f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}",
            "time at the roof": _share(row["roof_share"]),
            "of the peak": _share(row["peak_share"]),
            "without a model": ", ".join(row["unmodelled"]) or "-",
        }


def _counts(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for row in rows:
        yield {
            key: _number(value) if isinstance(value, float) else str(value)
            for key, value in row.items()
        }


def _graphs(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for row in rows:
        yield {
            "rows": str(row["rows"]),
            "with its capture": row["joined"].replace("\n", " "),
            "with the other": row["with_other"].replace("\n", " "),
        }


def _pairs(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for row in rows:
        before, after, found = row["before"], row["after"], row["predicted"]
        cells = {
            "pair": row["pair"],
            "change": found["change"],
            "before, ms": _range(before),
            "after, ms": _range(after),
            "recorded, ms": f"{found['recorded_ms']:.2f}",
        }
        if found["withheld"]:
            yield (
                cells
                | {"predicted, ms": f"withheld: {found['withheld']}"}
                | dict.fromkeys(("inside", "of the step", "of the saving"), "-")
            )
            continue
        off_ms, saved_ms = found["ms"] - after["ms"], before["ms"] - after["ms"]
        is_large = abs(saved_ms) > _FAST_ENOUGH * before["ms"]
        yield cells | {
            "predicted, ms": _range(found),
            "inside": "yes" if is_inside(row) else "no",
            "of the step": f"{off_ms / after['ms']:+.0%}",
            "of the saving": f"{off_ms / abs(saved_ms):+.0%}" if is_large else "-",
        }


def _range(found: Mapping[str, float]) -> str:
    return f"{found['ms']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def is_inside(row: Mapping[str, Any]) -> bool:
    """Whether the predicted interval and the measured range have something in common."""
    after, found = row["after"], row["predicted"]
    return after["low"] <= found["high"] and found["low"] <= after["high"]
