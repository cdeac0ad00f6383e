"""The page of a comparison: where the difference comes from, in one file that loads nothing."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pandas as pd

from htagraph.comparison.run_diff import RunDiff
from htagraph.model.frames import SHAPE_DIFF, STEP_DIFF
from htagraph.model.kinds import bound_in_words
from htagraph.model.units import human_count, human_duration
from htagraph.reports.gate import shown_diff
from htagraph.reports.page.panels import html_table, legend, mark, resource, short_rule, write_html

_N_BOUNDS = 9
"""Bounds with a bar of their own; the others share one: chosen."""
_N_SHAPES = 20
"""Rows of the same work on two devices: chosen."""
_N_STEPS = 40
"""Steps of each run with a bar: chosen."""


def write_diff_page(out: str | Path, found: RunDiff) -> Path:
    """Write a comparison as one HTML file that loads nothing else."""
    sides = zip(("before", "after"), found.facts, strict=True)
    facts = [f"<b>{side}</b> {escape(line)}" for side, line in sides]
    facts += [escape(found.details)] if found.details else []
    caveats, shown = (*found.damage, *found.left_out), [_where(found), _paths(found)]
    if found.is_elsewhere:
        table = html_table(found.shapes().head(_N_SHAPES), schema=SHAPE_DIFF)
        shown.insert(0, _panel("The same operators and shapes on both devices", table))
    by_op = _table(found.critical_path(by="op"), "By operator")
    by_name = _table(found.critical_path(by="name"), "By what ran")
    folded = {
        "path": ("Critical path by name and operator", by_op + by_name),
        "kernels": ("Kernels", _table(found.kernels(), "Device work, by kernel", calls=True)),
        "operators": ("Operators", _table(found.ops(), "With what they call", calls=True)),
        "devices": ("Devices", _table(found.device_time(), "Mean over devices")),
        "steps": ("Steps", _steps(found)),
    }
    return write_html(
        out,
        "diff.html",
        title=f"{found.before.name} → {found.after.name}",
        style=f"{resource('diff.css')}\n{short_rule()}",
        facts="\n".join(f'<p class="facts">{line}</p>' for line in facts),
        caveats="\n".join(f'<p class="caveat">{escape(said)}</p>' for said in caveats),
        verdict=escape(found.verdict()),
        open="\n".join(shown),
        folded="\n".join(
            f'<details class="section" id="{name}"><summary><h2>{escape(title)}</h2></summary>'
            f"{body}</details>"
            for name, (title, body) in folded.items()
        ),
        script=resource("tables.js"),
    )


def _panel(heading: str, body: str) -> str:
    return f'<article class="panel"><h3>{escape(heading)}</h3>{body}</article>'


def _row(label: str, bars: str, value: str, told: str = "") -> str:
    """A row of bars with its name and value; `told` is for those who do not see several bars."""
    role = f' role="img" aria-label="{escape(told)}"' if told else ""
    return (
        f'<div class="row"><b>{escape(label)}</b><div class="track"{role}>{bars}</div>'
        f"<span>{escape(value)}</span></div>"
    )


def _bar(left: float, width: float, *, bound: str = "", kind: str = "", title: str = "") -> str:
    """A bar; its start and width are shares of the track."""
    style = f"left:{100 * left:.3f}%;width:{100 * width:.3f}%"
    told = f' title="{escape(title)}"' if title else ""
    return f'<i class="{kind}" style="{style}"{mark(bound)}{told}></i>'


def _signed(dur_ns: float) -> str:
    """A difference of times; an arrow tells a rise from a fall at a glance."""
    return f"{'▲ +' if dur_ns > 0 else '▼ ' if dur_ns else ''}{human_duration(dur_ns)}"


def _levels(found: RunDiff) -> list[tuple[str, int, int, str]]:
    """Bounds, the change before and after each is added, and what became of it."""
    frame = found.critical_path()
    frame = frame[frame["delta_ns"] != 0]
    columns = (frame["name"], frame["delta_ns"].tolist(), frame["change"].astype(str))
    rows = list(zip(*columns, strict=True))
    shown, rest = rows[:_N_BOUNDS], rows[_N_BOUNDS:]
    if rest:
        shown.append((f"{len(rest)} others", sum(delta_ns for _, delta_ns, _ in rest), ""))
    levels, at_ns = [], 0
    for name, delta_ns, change in shown:
        levels.append((name, at_ns, at_ns + delta_ns, change))
        at_ns += delta_ns
    whole_ns = int(found.steps["after_ns"]) - int(found.steps["before_ns"])
    assert at_ns == whole_ns, "the bounds add up to the difference"
    return levels


def _where(found: RunDiff) -> str:
    """The change as a waterfall: each bound begins where the one above ends; and its table."""
    levels = _levels(found)
    before_ns, after_ns = int(found.steps["before_ns"]), int(found.steps["after_ns"])
    every = [0, after_ns - before_ns, *(level for _, *pair, _ in levels for level in pair)]
    low, span = min(every), max(max(every) - min(every), 1)
    total = ("in all", 0, after_ns - before_ns, str(found.steps["change"]))
    rows = []
    for name, begin, end, change in (*levels, total):
        is_noise, is_all = change == "noise", name == total[0]
        kinds = {"fall": end < begin, "noise": is_noise, "whole": is_all}
        bar = _bar(
            (min(begin, end) - low) / span,
            abs(end - begin) / span,
            bound=name,
            kind=" ".join(one for one, applies in kinds.items() if applies),
        )
        value = f"{_signed(end - begin)}{' (noise)' if is_noise else ''}"
        zero = f'<u style="left:{-100 * low / span:.3f}%"></u>'
        rows.append(_row(bound_in_words(name), zero + bar, value))
    table = html_table(shown_diff(found.critical_path()), schema=STEP_DIFF)
    title = f"From {human_duration(before_ns)} to {human_duration(after_ns)} per step, by bound"
    note = (
        '<p class="note">Each bar begins where the one above ends; the line is no change. Solid '
        "bars grow, hatched bars shrink; pale ones are within noise.</p>"
    )
    details = f"<details><summary>Table</summary>{table}</details>"
    return _panel(title, f'<div class="bars">{"".join(rows)}</div>{note}{details}')


def _paths(found: RunDiff) -> str:
    """Both paths as bars of one scale."""
    frame = found.critical_path()
    longest = max(int(found.steps["before_ns"]), int(found.steps["after_ns"]), 1)
    rows = []
    for side in ("before", "after"):
        left, bars, told = 0.0, [], []
        ordered = frame.sort_values("before_ns", ascending=False, kind="stable")
        for name, dur_ns in zip(ordered["name"], ordered[f"{side}_ns"].tolist(), strict=True):
            width = dur_ns / longest
            told.append(f"{bound_in_words(name)} {human_duration(dur_ns)}")
            bars.append(_bar(left, width, bound=name, title=told[-1]))
            left += width
        whole = human_duration(float(found.steps[f"{side}_ns"]))
        rows.append(_row(side, "".join(bars), whole, f"{side}: {', '.join(told)}"))
    bars_html = f'<div class="bars">{"".join(rows)}</div>'
    drawn = f"{bars_html}{legend(frame['name'])}"
    return _panel("The critical path per step, by bound", drawn)


def _table(frame: pd.DataFrame, heading: str, *, calls: bool = False) -> str:
    """A table of differences; what did not change at all is left out, and counted."""
    if not len(frame):
        return '<p class="note">Nothing of the kind was recorded.</p>'
    moved = frame[frame["delta_ns"] != 0]
    n_same = len(frame) - len(moved)
    said = f'<p class="note">{human_count(n_same, "row")} without any difference.</p>'
    same = said if n_same else ""
    table = html_table(shown_diff(moved, calls=calls), schema=STEP_DIFF) if len(moved) else ""
    return _panel(heading, table + same)


def _steps(found: RunDiff) -> str:
    """The length of every step that is compared."""
    longest = max((*found.before.steps_ns, *found.after.steps_ns), default=1) or 1
    rows = []
    for side, run in (("before", found.before), ("after", found.after)):
        for number, dur_ns in enumerate(run.steps_ns[:_N_STEPS], start=1):
            bar = _bar(0, dur_ns / longest, kind="whole")
            rows.append(_row(f"{side}, {number}", bar, human_duration(dur_ns)))
        if run.n_compared > _N_STEPS:
            rows.append(_row(f"… {run.n_compared - _N_STEPS:,} more {side}", "", ""))
    noise = human_duration(float(found.steps["noise_ns"])) if found.noise_share < 1e9 else "unknown"
    heading = f"Steps that are compared; noise of their mean difference is {noise}"
    return _panel(heading, f'<div class="bars">{"".join(rows)}</div>')
