"""`htagraph check`: whether a run keeps its limits, also those of pyproject.toml; and `diff`."""

from __future__ import annotations

import json
from concurrent.futures import Executor
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console

from htagraph.cli import options
from htagraph.cli.console import (
    notices,
    output,
    print_notes,
    print_sentence,
    shown_progress,
)
from htagraph.cli.inputs import Source, executor_of, loaded_run
from htagraph.cli.options import duration_of, share_of
from htagraph.cli.tables import Format, print_frame, print_titled
from htagraph.comparison.limits import Check, Limits, State, check_run
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import RunProfile
from htagraph.errors import one_of
from htagraph.model.progress import begin_stage
from htagraph.model.settings import DATA_LOADING, project_settings
from htagraph.model.units import human_percent
from htagraph.readers.storage import path_of
from htagraph.reports.gate import (
    check_block,
    check_document,
    diff_document,
    known_noise,
    limits_table,
    markdown_check,
    shown_diff,
)
from htagraph.reports.markdown import write_step_summary
from htagraph.run.compiled import LoadOptions
from htagraph.writers.output_file import write_text

KEYS = ("max-step", "max-exposed", "max-idle", "max-unknown", "baseline", "fail-above",
        "accept-damage")  # fmt: skip
"""Keys of the table: the options of `htagraph check` by their names."""

OF_ALL_VERBS = ("peaks", DATA_LOADING)
"""Keys for all verbs: see `htagraph.operators.peaks` and `htagraph.model.settings`."""


def settings_near(folder: Path) -> dict[str, str]:
    """Settings in the nearest pyproject.toml of a folder and its parents, as texts.

    Empty if there is no such file or table. The path of a baseline is relative to that file.
    """
    try:
        found = project_settings(folder)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc
    if found is None:
        return {}
    file, table = found
    return {key: _text(file, key, value) for key, value in table.items() if key not in OF_ALL_VERBS}


def _text(file: Path, key: str, value: object) -> str:
    """The value of a key as an option would have it."""
    if key not in KEYS:
        meant = one_of(key.replace("_", "-"), (*KEYS, *OF_ALL_VERBS))
        raise typer.BadParameter(f"{file}: unknown key {key!r} in [tool.htagraph]: {meant}")
    if key == "accept-damage":
        if not isinstance(value, bool):
            raise typer.BadParameter(f"{file}: {key} must be true or false.")
        return "true" if value else ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise typer.BadParameter(f'{file}: {key} must be a text such as "10%".')
    return str(file.parent / str(value)) if key == "baseline" else str(value)


EXIT_CODES: dict[State, int] = {"passed": 0, "withheld": 1, "broken": 3}
"""How a check ends; 2 is wrong usage, as everywhere."""

_TOP = 8
"""Chosen: bounds in the table that compares critical paths."""
_STYLES: dict[State, str] = {"passed": "green", "withheld": "yellow", "broken": "red"}


def end_with(found: Check) -> None:
    """End with the exit code of a check that did not pass."""
    if code := EXIT_CODES[found.state]:
        raise typer.Exit(code)


class CheckFormat(StrEnum):
    """Formats of a check."""

    TABLE = "table"
    MD = "md"
    JSON = "json"


def check(
    trace: options.RunPaths,
    *,
    max_step: Annotated[
        str, typer.Option(metavar="LENGTH", help="Limit for the mean of typical steps: 120ms.")
    ] = "",
    max_exposed: Annotated[
        str,
        typer.Option(
            metavar="SHARE", help="Limit for exposed communication, as a share of the steps: 10%."
        ),
    ] = "",
    max_idle: Annotated[
        str,
        typer.Option(metavar="SHARE", help="Limit for idle devices, as a share of the steps: 15%."),
    ] = "",
    max_unknown: Annotated[
        str,
        typer.Option(
            metavar="SHARE", help="Limit for unknown waits, as a share of the critical path: 5%."
        ),
    ] = "",
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="An earlier run: JSON of `htagraph report`, a trace or a folder."
        ),
    ] = None,
    fail_above: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Limit for how much slower than the baseline steps may be, beyond noise.",
            show_default="5%",
        ),
    ] = "",
    rank: options.Rank = None,
    window: options.Window = "",
    form: Annotated[CheckFormat, typer.Option("--format", "-f", help="Output format.")] = (
        CheckFormat.TABLE
    ),
    accept_damage: options.AcceptDamage = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write Markdown, for a pull request.")
    ] = None,
    keep: options.Keep = None,
    workers: options.Workers = 0,
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Check a run against limits. Exit code 0: within, 1: unknown, 2: wrong usage, 3: exceeded.

    Defaults are read from [tool.htagraph] in the nearest pyproject.toml, under the names of the
    options. See docs/gate.md.
    """
    given = {
        "max-step": max_step,
        "max-exposed": max_exposed,
        "max-idle": max_idle,
        "max-unknown": max_unknown,
        "baseline": "" if baseline is None else str(baseline),
        "fail-above": fail_above,
    }
    asked = settings_near(Path.cwd()) | {key: text for key, text in given.items() if text}
    accepted = accept_damage or bool(asked.pop("accept-damage", ""))
    limits = _limits(asked)
    with shown_progress(quiet=quiet), executor_of(workers) as executor:
        earlier = (
            loaded_run(Path(asked["baseline"]), executor=executor, infer=infer)
            if "baseline" in asked
            else None
        )
        if keep is None:
            run = loaded_run(trace, window, rank=rank, executor=executor, infer=infer)
        else:
            run = _kept(Source.of(trace, rank), window, keep, executor, infer=infer)
        begin_stage("Checking")
        found = check_run(
            run, limits, baseline=earlier, is_step=bool(window), accept_damage=accepted
        )
    if out is not None:
        write_text(out, markdown_check(found))
    write_step_summary(check_block(found))
    _print(output(), found, form)
    end_with(found)


def _kept(
    source: Source, window: str, folder: Path, executor: Executor | None, *, infer: bool
) -> RunProfile:
    """The profile of a run, which is kept with what limits it."""
    # Deferred: a check needs no verdict.
    from htagraph.cli.report import keep_run, summary_of  # noqa: PLC0415
    from htagraph.reports.json_document import summary_profile  # noqa: PLC0415

    found = source.opened(reading=LoadOptions(stacks=None, infer=infer), executor=executor)
    summary = summary_of(found, window, source.name, has_page=False)
    keep_run(summary, folder, "check")
    return summary_profile(summary)


def _limits(asked: dict[str, str]) -> Limits:
    """The limits that are asked for; at least one, or a baseline."""
    if not asked:
        raise typer.BadParameter(
            "no limits: give --max-step, --max-exposed, --max-idle, "
            "--max-unknown or --baseline, or [tool.htagraph] in pyproject.toml."
        )
    if "fail-above" in asked and "baseline" not in asked:
        raise typer.BadParameter("--fail-above needs a --baseline.")
    shares = {
        key.replace("-", "_"): share_of(text)
        for key, text in asked.items()
        if key not in ("max-step", "baseline")
    }
    step = duration_of(asked["max-step"]) if "max-step" in asked else None
    return Limits(max_step=step, **shares)


def _print(console: Console, found: Check, form: CheckFormat) -> None:
    if form is CheckFormat.MD:
        console.file.write(markdown_check(found))
        return
    if form is CheckFormat.JSON:
        console.file.write(json.dumps(check_document(found), indent=2) + "\n")
        return
    print_sentence(console, found.verdict(), style=f"bold {_STYLES[found.state]}")
    print_notes(console, found.notes)
    limits = limits_table(found)
    if len(limits):
        print_titled(console, "Limits", limits)
    if found.diff and found.diff.delta_ns:
        by_bound = shown_diff(found.diff.critical_path().head(_TOP))
        print_titled(console, "Critical path per step, before and after", by_bound)


_MOST_ROWS = 20
"""Chosen: rows of a table on the terminal."""


class What(StrEnum):
    """What is compared."""

    PATH = "path"
    KERNELS = "kernels"
    OPS = "ops"
    DEVICES = "devices"
    ALL = "all"


def diff(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE",
            parser=path_of,
            help="Trace, folder, or JSON of a report before the change.",
        ),
    ],
    after: Annotated[
        Path, typer.Argument(metavar="AFTER", parser=path_of, help="The same after the change.")
    ],
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    what: Annotated[
        What,
        typer.Option(
            help="Compare critical paths (deltas add up), kernels, operators or devices; all: "
            "everything as JSON."
        ),
    ] = What.PATH,
    by: Annotated[
        str,
        typer.Option(
            help="For paths: bound, op or name. For kernels: name, shape, module, annotation or "
            "phase; shapes compare devices and precisions."
        ),
    ] = "",
    fail_above: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Exit with 3 if steps are slower by more than this (5%) and by more than noise, "
            "with 1 if that is unknown.",
        ),
    ] = "",
    accept_damage: options.AcceptDamage = False,
    out: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="Also write a page with everything.")
    ] = None,
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    workers: options.Workers = 0,
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Compare the steps of two runs, with noise. The largest change is first.

    The same work on another device is compared by operators and shapes, against both roofs.
    """
    limit = share_of(fail_above) if fail_above else None
    with shown_progress(quiet=quiet), executor_of(workers) as executor:
        runs = [
            loaded_run(path, window, rank=rank, executor=executor, infer=infer)
            for path in (before, after)
        ]
        begin_stage("Comparing")
        found = RunDiff(*runs)
        frame = _asked(found, what, by)
    console, aside = output(), notices(quiet=quiet)
    if what is What.ALL:
        console.file.write(json.dumps(diff_document(found), indent=2) + "\n")
    else:
        if form is Format.TABLE:
            print_sentence(console, found.verdict(), style="bold")
            print_notes(console, found.notes)
        is_for_people = form in (Format.TABLE, Format.MD) and not columns
        if "noise_ns" in frame:
            is_path = what is What.PATH
            frame = shown_diff(frame, calls=not is_path) if is_for_people else known_noise(frame)
        shown = frame
        shown = shown.head(_MOST_ROWS) if form is Format.TABLE else shown
        print_frame(console, shown, form, columns=columns, aside=aside)
    if out is not None:
        from htagraph.reports.page.diff_page import write_diff_page  # noqa: PLC0415  few ask for it

        write_diff_page(out, found)
        aside.print(f"Wrote {out}  (in a browser)")
    if limit is not None:
        checked = check_run(
            found.after,
            Limits(fail_above=limit),
            baseline=found.before,
            accept_damage=accept_damage,
        )
        if checked.state != "passed":
            is_told = checked.state == "broken"
            said = f"Failed: limit {human_percent(limit)}." if is_told else checked.verdict()
            aside.print(said)
        end_with(checked)


def _asked(found: RunDiff, what: What, by: str) -> pd.DataFrame:
    """The table that is asked for."""
    match what:
        case What.KERNELS:
            return found.kernels(by=by or "name")  # type: ignore[arg-type]
        case What.OPS:
            return found.ops()
        case What.DEVICES:
            return found.device_time()
        case _:
            if found.is_elsewhere and not by:
                return found.shapes()
            return found.critical_path(by=by or "bound")  # type: ignore[arg-type]
