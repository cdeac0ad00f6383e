"""`htagraph report`: what limits a run, as text and as files; and `info`: what a trace has."""

from __future__ import annotations

import shlex
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from htagraph.arrays.memory import returns_memory
from htagraph.cli import options
from htagraph.cli.console import notices, output, shown_progress
from htagraph.cli.inputs import (
    CACHE_VARIABLE,
    Source,
    cache_folder,
    executor_of,
    given,
    lasting,
    windowed,
)
from htagraph.cli.tables import (
    BAR_WIDTH,
    Format,
    bar,
    print_frame,
    print_paragraphs,
    print_titled,
    print_verdict,
    write_document,
)
from htagraph.errors import QueryError
from htagraph.job.opened import is_too_large
from htagraph.lookup.find_window import WHOLE
from htagraph.model.colors import COLORS
from htagraph.model.kinds import EventKind, bound_in_words
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_count, human_duration, human_size
from htagraph.readers.memory_need import free_bytes, needed_bytes
from htagraph.reports.doctor import capture_cost, examine
from htagraph.reports.markdown import (
    job_tables,
    losses_in_words,
    markdown_block,
    next_question,
    seems_busier,
    use_in_words,
)
from htagraph.reports.report_folder import ReportOrigin
from htagraph.reports.summary import Summary
from htagraph.run.compiled import Compiled, LoadOptions
from htagraph.run.trace import Trace

if TYPE_CHECKING:
    from htagraph.job.job import Job
    from htagraph.reports.job_summary import JobSummary
    from htagraph.reports.kept_runs import KeptBy

_N_TOP = 6
"""Chosen: operators and names that a report lists."""
_N_ROWS = 12
"""Chosen: rows of every other table of a report."""
_WHERE_TO_OPEN = {
    "perfetto": "  (htagraph view, or https://ui.perfetto.dev)",
    "page": "  (in a browser)",
}
_COLORS = {bound.label: color.fill for bound, color in COLORS.items()}


def report(
    paths: options.RunPaths,
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files.", show_default="./htagraph-report/<parent>/<trace>"
        ),
    ] = None,
    json_file: Annotated[
        str,
        typer.Option(
            "--json", metavar="FILE", help="Also write the report as JSON; - prints only the JSON."
        ),
    ] = "",
    line: Annotated[
        bool, typer.Option("--line", help="Only print the run in one line of under 120 characters.")
    ] = False,
    block: Annotated[
        bool,
        typer.Option(
            "--block", help="Only print Markdown of at most 25 lines, for a pull request or Slack."
        ),
    ] = False,
    keep: options.Keep = None,
    files: Annotated[
        bool, typer.Option("--files/--no-files", help="Write files, or only print.")
    ] = True,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="Write all of a large trace, or more ranks of a job, for Perfetto."
        ),
    ] = False,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables", help="Print all: the path by step, bound and operator, devices, checks."
        ),
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    beside: options.Beside = None,
    capture: options.Capture = "",
    workers: options.Workers = 0,
    dask: options.Dask = "",
    stacks: options.Stacks = None,
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Find what limits a run and what to try first. A folder is a job, one trace per rank."""
    has_files, is_short = out is not None or open_page, line or block
    _check_options(files=files, has_files=has_files, is_short=is_short, has_json=bool(json_file))
    files = files and not is_short
    source = given(paths, rank, capture, beside)
    captures = source.captures
    if len(captures) > 1 and (out is not None or json_file):
        raise QueryError(
            "--out and --json write one report, not one per capture.", hint="give --capture N."
        )
    reading = LoadOptions(stacks=stacks, infer=infer)
    if not window and not source.is_job and is_too_large(file := source.file(captures[-1])):
        _report_parts(file, json_file, reading, has_files=has_files, quiet=quiet)
        return
    for number in captures:
        with executor_of(workers, dask) as executor:
            with shown_progress(quiet=quiet):
                first, *others = source.chosen(number).paths
                about = source.path if others else lasting(first)
                origin = ReportOrigin.of(about, window, number if others else "latest")
                if out is not None:
                    origin.check(out)
                found = source.opened(number, reading, window, executor)
                summary = summary_of(found, window, source.name, has_page=files)
                keep_run(summary, keep, "report")
            if is_short:
                output().file.write(_in_short(summary, line=line))
                continue
            if json_file != "-":
                _print(summary, tables=tables, quiet=quiet)
            written: dict[str, Path] = {}
            if files:
                with shown_progress(quiet=quiet):
                    # Deferred: a verdict needs neither pages nor jobs.
                    from htagraph.reports.report import write_files  # noqa: PLC0415

                    into = out or origin.folder(summary.name)
                    written = write_files(summary, into, whole=whole, record=origin.record)
                    origin.remove_stale(into, written.values())
            _write_json(summary, json_file, written)
        if json_file != "-":
            _print_next(summary, written, source, window, tables=tables, quiet=quiet)
        if open_page:
            _open(written)


def _check_options(*, files: bool, has_files: bool, is_short: bool, has_json: bool) -> None:
    """Refuse options that contradict each other."""
    if not files and has_files:
        raise QueryError(
            "--no-files conflicts with --out and --open.", hint="leave out one of them."
        )
    if is_short and (has_files or has_json):
        raise QueryError(
            "--line and --block write no files.", hint="leave out --out, --open and --json."
        )


def _report_parts(
    path: Path, json_file: str, reading: LoadOptions, *, has_files: bool, quiet: bool
) -> None:
    """Print what limits a trace larger than memory; no files are written."""
    if has_files:
        raise QueryError(
            "--out and --open need a trace that fits into memory.",
            hint="give -w STEP: one step has all files.",
        )
    from htagraph.reports.json_document import records  # noqa: PLC0415  deferred: few need it
    from htagraph.run.stepwise import stepwise_verdict  # noqa: PLC0415  deferred: few need it

    aside = notices(quiet=quiet)
    if cache_folder() is None:  # said before: who interrupts it does not see the end
        aside.print(
            f"{CACHE_VARIABLE}=FOLDER keeps what was read: an interrupted report continues.",
            style="dim",
        )
    with shown_progress(quiet=quiet):
        found = stepwise_verdict(
            path, stacks=bool(reading.stacks), infer=reading.infer, cache=cache_folder()
        )
    if json_file:
        tables = {
            "by_bound": records(found.by_bound.reset_index()),
            "by_op": records(found.by_op.reset_index()),
        }
        facts = {"n_steps": found.n_steps, "n_parts": found.n_parts}
        document = {"verdict": str(found).split("\n"), **facts, **tables}
        if write_document(document, json_file) is None:
            return
    console = output()
    console.print(path.name, style="bold")
    needed, free = human_size(needed_bytes(path)), human_size(free_bytes())
    console.print(
        f"Judged in {human_count(found.n_parts, 'part')} of "
        f"{human_count(found.n_steps, 'step')} in all: the whole needs about {needed} of memory, "
        f"and {free} are free.",
        style="yellow",
    )
    console.print()
    print_paragraphs(console, found.paragraphs)
    print_titled(console, "The critical path by bound", found.by_bound.reset_index())
    print_titled(console, "By operator", found.by_op.head(_N_TOP).reset_index())
    step = f"htagraph report {shlex.quote(str(path))} -w STEP"
    aside.print(f"\nOne step with all files: {step}", style="dim")


def summary_of(
    found: Compiled | Job, window: str, name: str, *, has_page: bool
) -> Summary | JobSummary:
    """What limits a trace or a job."""
    summary: Summary | JobSummary
    if isinstance(found, Compiled):
        begin_stage("Finding the critical path")
        summary = Summary.of(*found, window)
        returns_memory()
    else:
        from htagraph.reports.job_summary import JobSummary  # noqa: PLC0415  deferred: only jobs
        from htagraph.reports.report import page_work  # noqa: PLC0415  deferred: only for pages

        job = windowed(found, window)
        begin_stage("Finding the path across ranks")
        summary = JobSummary.of_answering(job, name, page_work(len(job)) if has_page else ())
        _ = summary.path
    begin_stage("Finding what limits it")
    _ = summary.verdict
    return summary


def keep_run(summary: Summary | JobSummary, folder: Path | None, source: KeptBy) -> None:
    """Keep a run for `htagraph history`, if there is a folder for it."""
    if folder is None:
        return
    from htagraph.reports.kept_runs import KeptRuns  # noqa: PLC0415  deferred: only to keep runs

    begin_stage("Keeping the run")
    KeptRuns(folder).keep(summary, source)


def _in_short(summary: Summary | JobSummary, *, line: bool) -> str:
    """A report as one line, or as a block of Markdown."""
    if not line:
        return markdown_block(summary)
    from htagraph.reports.kept_runs import row_of  # noqa: PLC0415  deferred: compares, too

    return f"{row_of(summary).line}\n"


def _print(summary: Summary | JobSummary, *, tables: bool, quiet: bool) -> None:
    """Print a report, each part as soon as it is made."""
    for part in (print_verdict, _print_tables)[: 1 + tables]:
        console = output()
        with shown_progress(quiet=quiet), console.capture() as captured:
            begin_stage("Summing up")
            part(console, summary)
        console.file.write(captured.get())
        console.file.flush()


def _write_json(summary: Summary | JobSummary, json_file: str, written: dict[str, Path]) -> None:
    """Write the report as JSON, or print it, if asked for."""
    if not json_file:
        return
    from htagraph.reports.json_document import json_document  # noqa: PLC0415  only for JSON

    if file := write_document(json_document(summary, written), json_file):
        written["json"] = file


def _open(written: dict[str, Path]) -> None:
    page = written["page"].resolve()
    if not webbrowser.open(page.as_uri()):
        raise QueryError("no browser can be opened here.", hint=f"open {page} in one.")


def _print_next(
    summary: Summary | JobSummary,
    files: dict[str, Path],
    source: Source,
    window: str,
    *,
    tables: bool,
    quiet: bool,
) -> None:
    """Print the files that were written, how to open them, and what to ask next."""
    aside = notices(quiet=quiet)
    if files:
        aside.print()
    for what, file in files.items():
        aside.print(f"Wrote {file}{_WHERE_TO_OPEN.get(what, '')}")
    name, (verb, more) = shlex.join(map(str, source.given)), next_question(summary)
    if source.rank is not None:
        name += f" --rank {source.rank}"
    part = f" -w {shlex.quote(window)}" if window else ""
    of = "" if verb == "info" else part  # it is of the whole trace
    aside.print(f"\nNext: htagraph {verb} {name}{of} {more}".rstrip())
    if not tables:
        aside.print(f"All of it: htagraph report --tables {name}{part}", style="dim")


def _print_tables(console: Console, summary: Summary | JobSummary) -> None:
    """Print what is behind the verdict: the path, what the devices do, and what to check."""
    if not isinstance(summary, Summary):
        if summary.inferred:
            console.print(f"\n{summary.inferred}", style="dim")
        for title, frame in job_tables(summary):
            _print_first(console, title, frame)
        return
    _print_first(console, "By step", summary.by_step)
    segments = human_count(summary.path.n_segments, "segment")
    title = f"Critical path: {human_duration(summary.path.dur_ns)} in {segments}"
    print_titled(console, title, _bound_table(summary, console.width))
    if summary.inferred:
        console.print(summary.inferred, style="dim")
    if seems_busier(summary.used):
        console.print()
        console.print(use_in_words(summary.used))
        console.print(losses_in_words(summary.losses), style="dim")
    for title, frame in (
        ("Operators on the path", summary.by_op),
        ("What ran on the path", summary.by_name),
    ):
        named = frame.head(_N_TOP).rename_axis("name").reset_index()
        named["name"] = named["name"].replace("", "(no operator)")
        print_titled(console, title, named)
    weak = summary.weak_checks[["check", "share", "verdict", "consequence"]]
    if len(weak):
        print_titled(console, "What the trace does not show", weak)
    lost = summary.trace.attached.query("n_matched == 0")[["path", "detail"]]
    if len(lost):
        print_titled(console, "Companion files that match nothing in the trace", lost)
    if len(summary.harmless_repairs):
        shown = summary.harmless_repairs.drop(columns="damage")
        print_titled(console, "Repairs of the file", shown)


def _print_first(console: Console, title: str, frame: pd.DataFrame) -> None:
    """Print the first rows of a table, if it has any, and of how many they are."""
    if len(frame):
        of = f", first {_N_ROWS} of {len(frame):,}" if len(frame) > _N_ROWS else ""
        print_titled(console, f"{title}{of}", frame.head(_N_ROWS))


def _bound_table(summary: Summary, width: int) -> Table:
    """The path by bound, as a table, with bars where there is room."""
    frame = summary.by_bound
    rows = [
        (bound_in_words(bound), human_duration(dur_ns), f"{share:.1%}")
        for bound, dur_ns, share in zip(
            frame.index.astype(str), frame["dur_ns"].tolist(), frame["share"].tolist(), strict=True
        )
    ]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    if width < sum(max(map(len, cells)) + 2 for cells in zip(*rows, strict=True)) + BAR_WIDTH:
        for row in rows:
            table.add_row(*row)
        return table
    table.add_column(no_wrap=True)
    for row, bound, share in zip(rows, frame.index.astype(str), frame["share"], strict=True):
        table.add_row(*row, Text(bar(share), style=_COLORS[bound]))
    return table


def info(
    paths: options.TracePaths,
    *,
    rank: options.Rank = None,
    form: options.Format = Format.TABLE,
    beside: options.Beside = None,
    capture: options.Capture = "",
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """List what a trace holds and lacks, what that affects, and how to record the rest."""
    source = given(paths, rank, capture, beside, form)
    with shown_progress(quiet=quiet):
        loaded, graph = source.one(source.one_capture, LoadOptions(infer=infer))
        graph = graph.window(WHOLE)
        begin_stage("Checking")
        summary = Summary(loaded, graph)
        quality = summary.quality
        cost = pd.DataFrame(capture_cost(loaded, summary.graph), columns=["check", "detail"])
        kinds = summary.graph.kinds()
    console = output()
    if form is not Format.TABLE:
        print_frame(console, quality, form)
        return
    console.print(summary.name, style="bold")
    console.print(summary.facts)
    for said in summary.damage:
        console.print(said, style="yellow")
    print_titled(console, "Recorded with", _metadata(loaded), header=False)
    unknown = {"kind": {EventKind.OTHER.label: "unknown, not in the graph"}}
    sizes = loaded.sizes.replace(unknown).rename(columns={"category": "name"})
    print_titled(console, "Events", sizes)
    print_titled(console, "Edges", kinds)
    shown = ["check", "share", "verdict", "consequence"]
    print_titled(console, "Checks", quality[shown])
    rows = [
        (found.subject, found.n, found.found_by, found.consequence, found.advice)
        for found in examine(loaded, summary.graph)
    ]
    recorded = pd.DataFrame(rows, columns=["check", "n", "found_by", "consequence", "advice"])
    print_titled(console, "Recorded", recorded.drop(columns="advice"))
    missing = recorded.loc[recorded["advice"] != "", ["check", "advice"]].rename(
        columns={"advice": "detail"}
    )
    if len(missing):
        print_titled(console, "Not recorded, and how to record it", missing, header=False)
    print_titled(console, "Cost of the capture", cost, header=False)
    if len(loaded.attached):
        shown = ["instrument", "n", "n_matched", "detail"]
        print_titled(console, "Companion files", loaded.attached[shown])
    if len(loaded.repairs):
        print_titled(console, "Repairs of the file", loaded.repairs)
    else:
        console.print("\nThe file needed no repair.")


def _metadata(trace: Trace) -> pd.DataFrame:
    """The header of the file, one line each, long values as what they are."""
    devices = trace.metadata.get("deviceProperties") or ()
    names = [device.get("name", "?") for device in devices if isinstance(device, dict)]
    job = trace.metadata.get("distributedInfo")
    rows = {"rank": f"{trace.rank} ({trace.rank_source})"}
    if names:
        rows["devices"] = f"{len(names)} x {', '.join(dict.fromkeys(names))}"
    if isinstance(job, dict) and "backend" in job:
        rows["backend"] = str(job["backend"])
    rows |= {
        name: str(value)
        for name, value in trace.metadata.items()
        if isinstance(value, str | int | float)
    }
    return pd.DataFrame({"check": list(rows), "name": list(rows.values())})
