"""`htagraph what-if`: what would help, and by how much; or what one change would do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console

from htagraph.cli import options
from htagraph.cli.console import notices, output, print_notes, print_sentence, shown_progress
from htagraph.cli.inputs import (
    Source,
    executor_of,
    given,
    window_in_words,
    windowed,
)
from htagraph.cli.tables import Format, print_facts, print_frame, print_titled, write_document
from htagraph.comparison.scenario import Scenario
from htagraph.comparison.scenario import what_if as replayed
from htagraph.errors import OutputError, QueryError
from htagraph.job.job import Job
from htagraph.job.scenario import JobScenario
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_percent
from htagraph.replay.change_options import ChangeOptions
from htagraph.replay.changes import Change
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import opportunities_document
from htagraph.reports.prediction import (
    bounds_of,
    caveats_of,
    prediction_document,
    prediction_in_words,
    ranks_of,
    readings_of,
)
from htagraph.reports.summary import UNCHANGED, Summary
from htagraph.run.compiled import Compiled, LoadOptions

_N_PARTS = 5
"""Chosen: parts of a path that the terminal lists."""


def print_answer(
    scenario: Scenario | JobScenario,
    summary: Summary | JobSummary,
    caveats: Sequence[str],
    asked: tuple[Format, str],
    aside: Console,
    *,
    of: str,
) -> None:
    """Print what changes save, and what limits the run then; without any, what would help."""
    console, (form, columns) = output(), asked
    if columns or form is not Format.TABLE:
        frame = readings_of(scenario) if scenario.changes else summary.opportunities
        print_frame(console, frame, form, columns=columns, aside=aside)
        return
    print_facts(console, summary, caveats)
    if scenario.changes:
        changes = ", ".join(map(str, scenario.changes))
        print_sentence(console, f"{of[0].upper()}{of[1:]} with {changes}:")
        print_sentence(console, prediction_in_words(scenario), style="bold")
        print_notes(console, caveats_of(scenario))
        if not scenario.withheld:
            print_titled(console, "What limits it", _largest(bounds_of(scenario)))
            if isinstance(scenario, JobScenario):
                print_titled(console, "On which ranks", _largest(ranks_of(scenario)))
    elif scenario.withheld:
        print_sentence(console, prediction_in_words(scenario), style="bold yellow")
    elif summary.first_changes.empty:
        print_sentence(console, UNCHANGED, style="bold")
    else:
        found = summary.first_changes
        saves = [f"{human_percent(share):>5}" for share in found["saves_share"]]
        print_sentence(console, f"What would help {of}:", style="bold")
        print_frame(console, found[["change"]].assign(saves=saves), form)
        print_notes(console, ["Each change alone: savings do not add up.", *caveats_of(scenario)])


def _largest(parts: pd.DataFrame) -> pd.DataFrame:
    """The parts of a path that take most time before or after."""
    most_ns = parts[["before_ns", "after_ns"]].max(axis=1)
    shown = parts.loc[most_ns.sort_values(ascending=False, kind="stable").index[:_N_PARTS]]
    return shown.drop(columns="delta_share")


def print_next(source: Source, *, changed: bool, out: Path | None, aside: Console) -> None:
    """Print the commands to continue with."""
    what_if = f"htagraph what-if {source.typed}"
    said = [f"Next: htagraph view {quote(str(out))}"] if out else []
    said += (
        [f"What else would help: {what_if}"]
        if changed
        else ["Other changes: htagraph what-if --help", f"All of it: {what_if} -f csv"]
    )
    aside.print()
    for line in said:
        aside.print(line, style="dim")


_PERFETTO = (".pftrace", ".pftrace.gz")


def _named(option: str, metavar: str, meaning: str) -> Any:  # noqa: ANN401  typer's own type
    """Option that can be given several times."""
    return typer.Option(option, metavar=metavar, help=f"{meaning} Repeatable.")


def what_if(
    paths: options.RunPaths,
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    without: Annotated[
        list[str] | None,
        _named("--without", "CAUSE", "No time goes to this cause of the verdict (data-loading)."),
    ] = None,
    scale: Annotated[
        list[str] | None, _named("--scale", "NAME=FACTOR", "These take FACTOR times as long.")
    ] = None,
    remove: Annotated[
        list[str] | None,
        _named("--remove", "NAME", "These are removed; `sync`: no call waits for the device."),
    ] = None,
    no_wait: Annotated[
        list[str] | None, _named("--no-wait", "NAME", "These calls do not wait for the device.")
    ] = None,
    insert: Annotated[
        list[str] | None, _named("--insert", "NAME=TIME", "TIME is added after each (50us, 2ms).")
    ] = None,
    reweigh: Annotated[
        list[str] | None,
        _named("--reweigh", "KIND=FACTOR|TIME", "Edges of this kind take FACTOR times, or TIME."),
    ] = None,
    overlap: Annotated[
        list[str] | None, _named("--overlap", "NAME", "These overlap with all other device work.")
    ] = None,
    fuse: Annotated[
        list[str] | None, _named("--fuse", "NAME,NAME,…", "These consecutive kernels become one.")
    ] = None,
    at_roof: Annotated[
        list[str] | None,
        _named("--at-roof", "NAME|all", "These take the least time that the device needs."),
    ] = None,
    allow_tf32: Annotated[
        bool, typer.Option("--allow-tf32", help="Products of fp32 run as TF32.")
    ] = False,
    prefetch: Annotated[
        int | None, typer.Option(metavar="N", help="N workers load data during the steps.")
    ] = None,
    graphed: Annotated[
        bool, typer.Option("--graphed", help="Capture each step as a CUDA or HIP graph.")
    ] = False,
    bandwidth: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Collectives move data FACTOR times as fast."),
    ] = None,
    equalise: Annotated[
        bool,
        typer.Option("--equalise", help="Job only: no rank arrives later than the median rank."),
    ] = False,
    on_rank: Annotated[
        int | None,
        typer.Option(
            "--on-rank", metavar="N", help="Job only: apply the changes to this rank alone."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write the run before and after the changes (a job: only after): .pftrace "
            "(Perfetto)."
        ),
    ] = None,
    json_file: Annotated[
        str,
        typer.Option(
            "--json", metavar="FILE", help="Also write the answer as JSON; - prints only the JSON."
        ),
    ] = "",
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    beside: options.Beside = None,
    capture: options.Capture = "",
    workers: options.Workers = 0,
    dask: options.Dask = "",
    stacks: options.Stacks = None,
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Predict what would help, and by how much; with changes, what they would save.

    NAME is a name, glob or regex of kernels, operators or calls. Several changes are applied
    together. A folder is a job; its ranks are replayed together.
    """
    asked = ChangeOptions(
        without=without,
        scale=scale,
        remove=remove,
        no_wait=no_wait,
        insert=insert,
        reweigh=reweigh,
        overlap=overlap,
        fuse=fuse,
        prefetch=prefetch,
        graphed=graphed,
        bandwidth=bandwidth,
        equalise=equalise,
        rank=on_rank,
        at_roof=at_roof,
        allow_tf32=allow_tf32,
    )
    changes = asked.changes()
    _check_out(out, has_changes=bool(changes))
    source = given(paths, rank, capture, beside, form)
    if asked.needs_job and not source.is_job:
        hint = "give the folder with the traces of its ranks."
        raise QueryError("--equalise and --on-rank need the ranks of a job.", hint=hint)
    with shown_progress(quiet=quiet), executor_of(workers, dask) as executor:
        reading = LoadOptions(stacks=stacks, infer=infer)
        found = source.opened(source.one_capture, reading, window, executor)
        scenario, summary, caveats = _replayed(found, window, source.name, changes)
        begin_stage("Replaying")
        document = prediction_document(scenario) if changes else opportunities_document(summary)
        if out is not None:
            begin_stage(f"Writing {out}")
            run = scenario if isinstance(scenario, Scenario) else scenario.critical_path()
            run.to_perfetto(out)
    aside = notices(quiet=quiet)
    if json_file:
        write_document({"file": str(source.path), **document}, json_file)
    if json_file != "-":
        of = window_in_words(window, of_job=source.is_job)
        print_answer(scenario, summary, caveats, (form, columns), aside, of=of)
    for file in filter(None, [out, None if json_file in ("", "-") else json_file]):
        aside.print(f"Wrote {file}")
    if form is Format.TABLE and json_file != "-":
        print_next(source, changed=bool(changes), out=out, aside=aside)


def _replayed(
    found: Compiled | Job, window: str, name: str, changes: Sequence[Change]
) -> tuple[Scenario | JobScenario, Summary | JobSummary, list[str]]:
    """Scenario, summary and caveats of a trace, or of a job, each of whose ranks is opened once."""
    if isinstance(found, Compiled):
        of_trace = Summary.of(*found, window)
        caveats = [*of_trace.window_caveats, *of_trace.damage]
        return replayed(of_trace.graph, *changes), of_trace, caveats
    job = windowed(found, window)
    scenario = replayed(job, *changes)
    begin_stage("Finding the path across ranks")
    if not job.is_replayed:
        _ = scenario.rehearsal  # raises if no replay is possible, before ranks are visited
    summary = JobSummary(job, name, however_large=True)
    _ = summary.facts  # visits every rank, while the worker processes are there
    return scenario, summary, [*summary.caveats, *summary.damage]


def _check_out(out: Path | None, *, has_changes: bool) -> None:
    """Check where the run is to be written, before anything is read."""
    if out is None:
        return
    if not out.name.endswith(_PERFETTO):
        hint = "end the name in .pftrace, or .pftrace.gz."
        raise OutputError("the run is written as a Perfetto trace.", path=out, hint=hint)
    if not has_changes:
        hint = "name one, for example --scale 'gemm*=0.5'."
        raise QueryError("--out writes the changed run, and no change is given.", hint=hint)
