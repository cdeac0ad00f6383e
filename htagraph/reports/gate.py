"""Comparisons and checks as Markdown, for a pull request, and as plain values, for programs."""

from __future__ import annotations

from dataclasses import asdict
from math import isinf
from typing import Any

import pandas as pd

from htagraph.comparison.causes import calls_in_words
from htagraph.comparison.limits import NAMES, RESULTS, Check
from htagraph.comparison.run_diff import RunDiff
from htagraph.model.kinds import bound_in_words
from htagraph.reports.json_document import records
from htagraph.reports.markdown import block, escaped, markdown_table
from htagraph.writers.cells import human_frame

CHECK_SCHEMA = "htagraph.check"
CHECK_VERSION = 1
DIFF_SCHEMA = "htagraph.diff"
DIFF_VERSION = 1

_TOP = 8
"""Rows of a table in a comment on a pull request: chosen."""
_HEAD = (
    "Critical path per step, mean of similar steps; the differences add up to that of the steps:"
)


def shown_diff(frame: pd.DataFrame, *, calls: bool = False) -> pd.DataFrame:
    """A table of differences for people: before, after, difference, noise and what changed.

    ``noise_ns`` is NaN if it is not known. With `calls`, the change is whether work runs more often
    or takes longer.
    """
    is_label = frame["bound"] == frame["name"]
    has_bounds = not (is_label | (frame["bound"] == "")).all()
    order = ["name", "before_ns", "after_ns", "delta_ns", "noise_ns", "change"]
    change = frame["change"].astype(str).replace({"noise": "", "unknown": "?"})
    said = [calls_in_words(row) if calls else "" for row in frame.to_dict("records")]
    shown = frame.assign(
        name=frame["name"].where(~is_label, frame["name"].map(bound_in_words)),
        noise_ns=frame["noise_ns"].where(frame["noise_ns"] < float("inf")),
        change=[one and (how or one) for one, how in zip(change, said, strict=True)],
    )
    return shown[[*order, *(["bound"] if has_bounds else [])]]


def known_noise(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of differences in which noise that is not known is None, as JSON has no infinity."""
    noise = frame["noise_ns"]
    return frame.assign(noise_ns=noise.astype(object).where(noise < float("inf"), None))


def limits_table(check: Check) -> pd.DataFrame:
    """The limits of a check as texts: ``limit``, ``measured``, ``allowed``, ``result``, ``said``.

    Empty for one limit, which the verdict tells; ``said`` only if there is anything to say.
    """
    rows = [
        {
            "limit": NAMES[one.limit],
            "measured": one.in_words(one.value),
            "allowed": one.in_words(one.allowed),
            "result": RESULTS[one.state],
            "said": one.said if one.state == "withheld" else "",
        }
        for one in check.limits
        if len(check.limits) > 1
    ]
    frame = pd.DataFrame(rows)
    return (
        frame if any(row["said"] for row in rows) else frame.drop(columns="said", errors="ignore")
    )


def _details(title: str, body: str) -> str:
    """Text that opens with a click."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def diff_parts(found: RunDiff) -> list[str]:
    """What changed, as Markdown: the path by bound, and what can be opened."""
    tables = (
        ("Critical path by operator", found.critical_path(by="op"), False),
        ("Kernels", found.kernels(), True),
        ("Operators, with what they call", found.ops(), True),
        ("Devices", found.device_time(), False),
    )
    by_bound = found.critical_path()
    moved = by_bound[by_bound["delta_ns"] != 0]
    by_shape = found.shapes().head(_TOP) if found.is_elsewhere else None
    parts = [
        *([] if by_shape is None else [markdown_table(human_frame(by_shape))]),
        _HEAD,
        markdown_table(human_frame(shown_diff(moved.head(_TOP)))),
    ]
    parts += [
        _details(title, markdown_table(human_frame(shown_diff(frame.head(_TOP), calls=calls))))
        for title, frame, calls in tables
        if len(frame)
    ]
    return [*parts, _details("What is compared", "\n".join(f"- {escaped(s)}" for s in found.notes))]


def markdown_check(check: Check) -> str:
    """A check as a comment on a pull request: the verdict, the limits, and what changed."""
    return "\n\n".join(_check_parts(check)) + "\n"


def check_block(check: Check) -> str:
    """The same in at most 25 lines, without what can be opened."""
    return block(part for part in _check_parts(check) if not part.startswith("<details>"))


def _check_parts(check: Check) -> list[str]:
    limits = limits_table(check)
    return [
        f"### htagraph: {escaped(check.verdict())}",
        *([markdown_table(limits)] if len(limits) else []),
        *(diff_parts(check.diff) if check.diff else map(escaped, check.notes)),
    ]


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of differences as plain values."""
    return records(known_noise(frame))


def diff_document(found: RunDiff) -> dict[str, Any]:
    """A comparison of runs as a dict that `json.dumps` accepts.

    ``schema``, ``version``, ``verdict``, ``notes``, ``damage`` (sentences), ``not_comparable``,
    ``before_ns``, ``after_ns``, ``delta_ns``, ``delta_share``, ``noise_share`` (null: not known),
    ``is_change``, ``doubt`` (why steps that differ may do so for the machine's sake), and rows of
    `frames.STEP_DIFF`: ``by_bound``, ``by_op``, ``by_name``, ``kernels``, ``operators``,
    ``devices``; of `frames.SHAPE_DIFF`, if only the device is another one: ``by_shape``.
    """
    return {
        "schema": DIFF_SCHEMA,
        "version": DIFF_VERSION,
        "verdict": found.verdict(),
        "notes": found.notes,
        "damage": list(found.damage),
        "not_comparable": list(found.not_comparable),
        "before_ns": int(found.steps["before_ns"]),
        "after_ns": int(found.steps["after_ns"]),
        "delta_ns": found.delta_ns,
        "delta_share": found.delta_share,
        "noise_share": None if isinf(found.noise_share) else found.noise_share,
        "is_change": found.is_change,
        "doubt": found.doubt,
        "by_bound": _records(found.critical_path()),
        "by_op": _records(found.critical_path(by="op")),
        "by_name": _records(found.critical_path(by="name")),
        "kernels": _records(found.kernels()),
        "operators": _records(found.ops()),
        "devices": _records(found.device_time()),
        "by_shape": records(found.shapes()) if found.is_elsewhere else [],
    }


def check_document(check: Check) -> dict[str, Any]:
    """A check as a dict that `json.dumps` accepts.

    ``schema``, ``version``, ``state`` (passed, broken or withheld), ``verdict``, ``run``,
    ``damage`` (sentences: why limits are withheld that could be checked), ``limits`` (limit, value,
    allowed, state, said) and ``diff``: null, or that of `diff_document`.
    """
    return {
        "schema": CHECK_SCHEMA,
        "version": CHECK_VERSION,
        "state": check.state,
        "verdict": check.verdict(),
        "run": check.run.facts,
        "damage": list(check.damage),
        "limits": [asdict(one) for one in check.limits],
        "diff": diff_document(check.diff) if check.diff else None,
    }
