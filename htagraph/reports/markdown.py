"""Summaries and tables as Markdown; how full devices are, in sentences; what to ask next."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from htagraph.model.answers import TEMPORAL_BREAKDOWN, UTILIZATION
from htagraph.model.job_answers import STRAGGLERS
from htagraph.model.kinds import Cause, SlotUse
from htagraph.model.labels import printable
from htagraph.model.units import human_count, human_duration
from htagraph.replay.change_options import options_of
from htagraph.replay.changes import without
from htagraph.reports.summary import ALONE, Summary
from htagraph.writers.cells import human_frame
from htagraph.writers.output_file import append_text

if TYPE_CHECKING:
    from htagraph.reports.job_summary import JobSummary

_N_LOSSES = 3
"""Causes of empty warp slots in one sentence: chosen."""
_WORTH_SAYING = 0.01
"""Share of warp slots below which a cause is left out: chosen."""
_NEARLY_ALL = 0.995
"""Known share of kernel time that reads 100% when rounded."""
_SMALL = 0.1
"""Share below which percent needs a decimal to show two digits."""
_BUSY = 0.5
"""Utilization, and share of it on SMs, that counts as busy: chosen."""
_WHY = {
    SlotUse.IDLE: "with no kernel running",
    SlotUse.COMMUNICATION: "in communication kernels, which use few SMs",
    SlotUse.SMALL_GRID: "because grids have fewer blocks than the device has SMs",
    SlotUse.TAIL_WAVE: "in the last waves of kernels",
    SlotUse.FEW_BLOCKS: "because grids have fewer blocks than fit",
    SlotUse.REGISTERS: "limited by registers",
    SlotUse.SHARED_MEMORY: "limited by shared memory",
    SlotUse.BLOCK_SIZE: "limited by block size",
}


def share_of_all(devices: pd.DataFrame, part: str) -> float:
    """The share of a part in the time of all devices, as profiles have it."""
    return float(devices[f"{part}_ns"].sum() / max(int(devices["window_ns"].sum()), 1))


def use_in_words(used: pd.DataFrame) -> str:
    """The factors from GPU utilization to used warp slots; empty without device work."""
    if used.empty:
        return ""
    means = used[["gpu_utilization", "sm_activity", "sm_occupancy"]].mean(skipna=False)
    busy, active, filled = means.tolist()
    first = "A kernel runs" if len(used) == 1 else "On average of devices, a kernel runs"
    said = f"{first} {_percent(busy)} of the time"
    if not busy or pd.isna(active):
        why = "; too few launch geometries are recorded to tell how full the device is then."
        return f"{said}{why if busy else '.'}"
    said = f"{said}, on {_percent(active / busy)} of the SMs"
    coverage = float(used["grid_coverage"].mean())
    of = "" if coverage > _NEARLY_ALL else f" from {coverage:.0%} of the time of kernels"
    if pd.isna(filled):
        return f"{said} (estimated{of})."
    warps = filled / active if active else 0.0
    filled_slots = f"fills {_percent(warps)} of their warp slots: {_percent(filled)} of all"
    return f"{said}, and {filled_slots} (estimated{of})."


def seems_busier(used: pd.DataFrame) -> bool:
    """Whether GPU utilization is high although less than half of the SMs are busy."""
    if used.empty:
        return False
    busy, active = used["gpu_utilization"].mean(), used["sm_activity"].mean(skipna=False)
    return bool(busy > _BUSY and active < busy * _BUSY)


def _percent(share: float) -> str:
    """A share in percent, of two digits at least where it is small."""
    return f"{share:.0%}" if share >= _SMALL or not share else f"{share:.1%}"


def lost_slots(losses: pd.DataFrame) -> pd.DataFrame:
    """Rows of warp slots that are empty while kernels run."""
    kept = ~losses["use"].isin([SlotUse.IDLE.label, SlotUse.USED.label])
    return losses[kept].reset_index(drop=True)


def losses_in_words(losses: pd.DataFrame) -> str:
    """The largest losses of warp slots, over all kernels and devices; empty without any."""
    use = losses["use"].astype(str)
    known = ~use.isin([SlotUse.USED.label, SlotUse.NOT_RECORDED.label])
    n_devices = max(losses["device"].nunique(), 1)
    shares = losses[known].groupby(use[known])["share"].sum() / n_devices
    shares = shares[shares >= _WORTH_SAYING].sort_values(ascending=False, kind="stable")
    named = [f"{share:.0%} {_WHY[SlotUse[str(use).upper()]]}" for use, share in shares.items()]
    return f"Empty warp slots: {', '.join(named[:_N_LOSSES])}." if named else ""


_TOP = 10
"""Rows of a table of groups: chosen, as the page has all."""
_MAX_STEPS = 20
"""Steps listed: chosen."""
_MOST_LINES = 25
"""Lines of a block: chosen, as more is no summary. Pinned by `test_kept_runs.py`."""
_MAX_ROWS = 64
"""Rows of a table of a job, which has one per rank: chosen."""
_ESCAPED = re.compile(r"([\\`*\[\]<>|~$&!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""Characters that Markdown, or HTML in it, would read; ``_`` within a word is only a character."""


def markdown_table(frame: pd.DataFrame) -> str:
    r"""Frame as a Markdown table; cells are taken as texts."""
    rows = [list(frame.columns), *frame.astype(str).to_numpy().tolist()]
    cells = [[escaped(str(cell)) for cell in row] for row in rows]
    cells.insert(1, ["---"] * len(frame.columns))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def escaped(text: str) -> str:
    r"""Text that a Markdown reader shows as it is, on one line."""
    return _ESCAPED.sub(r"\\\1", printable(" ".join(text.split("\n"))))


def _head(summary: Summary | JobSummary) -> list[str]:
    """First paragraphs of a report: facts, caveats and the verdict."""
    verdict = summary.verdict
    head = [
        f"# {escaped(summary.name)}",
        escaped(summary.facts),
        *map(escaped, summary.window_caveats),
        *(f"- {escaped(said)}" for said in verdict.top_damage),
        f"**{escaped(verdict.headline)}**",
    ]
    for number, card in enumerate(verdict.cards, start=1):
        lines = [f"{number}. **{escaped(card.title)}**: {escaped(card.said)}"]
        for one in card.findings:
            why = f" {one.fix.why}" if one.fix.why else ""
            lines += [f"   {escaped(one.evidence_sentence)}"] if one.evidence_sentence else []
            lines += [f"   *{escaped(one.advice)}*{escaped(why)}"] if one.fix.do else []
        head.append("  \n".join(lines))
    notes = verdict.document()["notes"]
    return [
        *head,
        *map(escaped, filter(None, [verdict.by_function, verdict.also, *notes, *summary.notes])),
    ]


def _help(summary: Summary | JobSummary) -> list[str]:
    """Paragraphs on what would help; none if nothing would or nothing is known."""
    helpful = summary.first_changes
    if helpful.empty:
        return []
    table = markdown_table(human_frame(helpful))
    return ["## What would help", escaped(f"{ALONE} {summary.verdict.rests_on}".strip()), table]


def _groups(frame: pd.DataFrame, name: str) -> str:
    """First groups of a breakdown as a table."""
    return markdown_table(human_frame(frame.head(_TOP).rename_axis(name).reset_index()))


def _table(title: str, frame: pd.DataFrame, most: int) -> list[str]:
    """A table with its title, and how many rows there are if some are left out."""
    more = [f"The first {most} of {len(frame):,}."] if len(frame) > most else []
    return [f"## {title}", markdown_table(human_frame(frame.head(most))), *more]


def markdown_summary(summary: Summary | JobSummary) -> str:
    """Summary as a Markdown page."""
    if not isinstance(summary, Summary):
        said = [escaped(summary.inferred)] if summary.inferred else []
        parts = [*_head(summary), *said, *_help(summary)]
        for title, frame in job_tables(summary):
            parts += _table(title, frame, _MAX_ROWS)
        return "\n\n".join(parts) + "\n"
    parts = [*_head(summary), *_help(summary)]
    if len(summary.by_step):
        parts += _table("By step", summary.by_step, _MAX_STEPS)
    segments = human_count(summary.path.n_segments, "segment")
    parts += [
        "## Critical path",
        f"{human_duration(summary.path.dur_ns)} in {segments} that tile the window. "
        f"{escaped(summary.inferred)}".strip(),
        _groups(summary.by_bound, "bound"),
        "## Operators on the path",
        _groups(summary.by_op, "op"),
        "## What ran on the path",
        _groups(summary.by_name, "name"),
    ]
    if len(summary.used):
        full = f"{use_in_words(summary.used)} {losses_in_words(summary.losses)}".strip()
        lost = lost_slots(summary.losses).head(_TOP)
        parts += ["## Utilization", escaped(full)]
        parts += [markdown_table(human_frame(lost))] if len(lost) else []
    weak = summary.weak_checks
    parts += [
        "## Quality",
        markdown_table(human_frame(weak)) if len(weak) else "All checks are good.",
    ]
    if len(summary.harmless_repairs):
        shown = human_frame(summary.harmless_repairs.drop(columns="damage"))
        parts += ["## Repairs of the file", markdown_table(shown)]
    return "\n\n".join(parts) + "\n"


def block(parts: Iterable[str]) -> str:
    """Parts of a Markdown page until 25 lines are full, for a pull request, a summary or Slack."""
    kept: list[str] = []
    for part in parts:
        if "\n\n".join([*kept, part]).count("\n") >= _MOST_LINES:
            break
        kept.append(part)
    return "\n\n".join(kept) + "\n"


def markdown_block(summary: Summary | JobSummary) -> str:
    """The first screen of a report as at most 25 lines of Markdown."""
    return block(_head(summary))


def write_step_summary(text: str) -> None:
    """Append Markdown to the summary of a step of GitHub Actions, if this is one."""
    if file := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_text(file, f"{text}\n")


def job_tables(summary: JobSummary) -> list[tuple[str, pd.DataFrame]]:
    """Tables of a job's report with their titles; empty ones are left out."""
    tables = [
        ("Critical path by rank", summary.by_rank.reset_index(names="rank")),
        ("Critical path by bound", summary.by_bound.reset_index(names="bound")),
        ("Late ranks", summary.stragglers[STRAGGLERS.shown(summary.stragglers)]),
        ("Devices", summary.devices[TEMPORAL_BREAKDOWN.shown(summary.devices)]),
        ("Utilization", summary.used[UTILIZATION.shown(summary.used)]),
        ("What the traces do not show", summary.weak_by_check),
        ("Left out", summary.failures),
    ]
    return [(title, frame) for title, frame in tables if len(frame)]


_NEXT = {
    Cause.LATE_RANK: "ask stragglers",
    Cause.PIPELINE: "ask pipeline_savings",
    Cause.EXPERT_IMBALANCE: "ask experts",
    Cause.COMPUTE: "ask kernel_breakdown",
    Cause.CPU_OPERATORS: "ask operator_breakdown",
}
"""What to ask next, by the first cause, if it leads or is the work itself."""


def next_question(summary: Summary | JobSummary) -> tuple[str, str]:
    """The verb to continue with, with its question if it takes one; and options that follow."""
    verdict = summary.verdict
    match verdict.state:
        case "withheld" | "hidden chain":
            return ("info" if isinstance(summary, Summary) else "ask quality"), ""
        case "nothing" | "side by side":
            return "what-if", ""
        case "work bound" if verdict.functions:
            return "ask functions", ""
        case "one rank" | "work bound":
            return _NEXT[Cause(verdict.findings[0].cause)], ""
    options = options_of(without(verdict.findings[0].cause))
    if not isinstance(summary, Summary) and summary.job.alone:
        return "what-if", f"--rank {min(summary.job.ranks)} {options}"
    return "what-if", options
