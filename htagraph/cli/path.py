"""`htagraph path` and `why`: the critical path of a run, or the chain to one event."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output, print_sentence, shown_progress
from htagraph.cli.inputs import (
    executor_of,
    given,
    print_left_out,
    window_in_words,
)
from htagraph.cli.tables import Format, print_frame
from htagraph.errors import OutputError, QueryError
from htagraph.explain.segments import LABELS
from htagraph.findings.path import CriticalPath
from htagraph.lookup.windowed import edge_arrows
from htagraph.model.frames import SEGMENTS
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_count, human_duration
from htagraph.run.compiled import LoadOptions
from htagraph.run.graph import TraceGraph
from htagraph.writers.cells import Columns
from htagraph.writers.flame import SPEEDSCOPE

if TYPE_CHECKING:
    from htagraph.job.path import JobPath, JobWhy
    from htagraph.run.why import Why

_MAX_ROWS = 40
"""Chosen: rows of a table on the terminal."""
_N_RANKS = 3
"""Chosen: ranks that a headline names."""


class By(StrEnum):
    """Keys by which the time of the path is grouped."""

    BOUND = "bound"
    KIND = "kind"
    NAME = "name"
    OP = "op"
    TRACK = "track"
    RULE = "rule"
    STEP = "step"
    RANK = "rank"
    SEGMENT = "segment"


def path(
    paths: options.RunPaths,
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    by: Annotated[
        By, typer.Option(help="Group by this; `segment` lists every segment.")
    ] = By.BOUND,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write the path: .pftrace (Perfetto) or .dot; for one rank also .json (the "
            "original with the path added), .collapsed or .speedscope.json (a flame graph)."
        ),
    ] = None,
    all_edges: Annotated[
        bool,
        typer.Option("--all-edges", help="In .pftrace, arrows for all edges of the window."),
    ] = False,
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
    """Print the critical path of a trace or a job, grouped. The parts add up to the window."""
    source = given(paths, rank, capture, beside, form)
    if all_edges and (out is None or source.is_job or ".pftrace" not in out.suffixes):
        raise QueryError(
            "--all-edges draws arrows in the .pftrace of one rank.",
            hint="add --out path.pftrace; of a job, also --rank.",
        )
    with shown_progress(quiet=quiet), executor_of(workers, dask) as executor:
        # Only a flame graph shows stacks, which take most of the time to read.
        is_flame = out is not None and _is_flame(out)
        reading = LoadOptions(stacks=stacks if stacks or is_flame else False, infer=infer)
        run = source.run(source.one_capture, reading, window, executor)
        of_job = source.is_job
        begin_stage("Finding the path across ranks" if of_job else "Finding the critical path")
        found = run.critical_path()
        parts = _parts(found, by)
        if out is not None:
            begin_stage(f"Writing {out}")
            write_path(found, out, **({"edges": "all"} if all_edges else {}))
    console, aside = output(), notices(quiet=quiet)
    if form is Format.TABLE:
        print_sentence(console, _headline(found, window), style="bold")
        print_frame(
            console,
            {str(name): values[:_MAX_ROWS] for name, values in parts.items()},
            form,
            columns=columns,
            first=SEGMENTS.shown(parts) if by is By.SEGMENT else (),
            aside=aside,
        )
        n_more = len(parts["dur_ns"]) - _MAX_ROWS
        if n_more > 0:
            aside.print(f"{n_more:,} more rows: --format csv prints all.", style="dim")
    else:
        print_frame(console, parts, form, columns=columns)
    print_left_out(run.left_out, aside)
    if out is not None:
        aside.print(f"Wrote {out}")
    if all_edges and isinstance(found, CriticalPath):
        arrows, n_without = edge_arrows(found.dag, found.window)
        aside.print(
            f"{human_count(arrows.shape[1], 'pair')} of events have an arrow; "
            f"{human_count(n_without, 'edge')} to the end of what began before have none."
        )


def _headline(found: CriticalPath | JobPath, window: str) -> str:
    """What the path is of, how long it is, and on which ranks of a job."""
    if isinstance(found, CriticalPath):
        n_segments, ranks = int(found.sums()["n_segments"].sum()), ""
    else:
        shares = found.breakdown(by="rank")["share"].head(_N_RANKS)
        n_segments = len(found.segments)
        ranks = f": {', '.join(f'rank {rank} {share:.0%}' for rank, share in shares.items())}"
    lasts = f"{human_duration(found.dur_ns)} in {human_count(n_segments, 'segment')}"
    of = window_in_words(window, of_job=not isinstance(found, CriticalPath))
    return f"Critical path of {of}: {lasts}{ranks}."


def _parts(found: CriticalPath | JobPath, by: By) -> pd.DataFrame | Columns:
    """The path by its parts, or its segments."""
    if by is By.SEGMENT:
        return found.segments
    key: Any = by.value
    if isinstance(found, CriticalPath) and key in LABELS:
        return found.sums(by=key)
    return found.breakdown(by=key).reset_index()


def write_path(found: CriticalPath | JobPath, out: Path, **options: Any) -> None:  # noqa: ANN401
    """Write the path in the format that the ending of the file names."""
    suffix = Path(out.name.removesuffix(".gz")).suffix
    writers: dict[str, Callable[..., Any]] = {
        ".pftrace": found.to_perfetto,
        ".dot": found.to_dot,
    }
    if isinstance(found, CriticalPath):
        writers[".json"] = found.flame if _is_flame(out) else found.to_chrome_json
        writers[".collapsed"] = found.flame
        hint = "end the name in .pftrace, .json or .dot; or .collapsed or .speedscope.json."
    else:
        most = found.breakdown(by="rank").index[0]
        hint = (
            "end the name in .pftrace or .dot. A flame graph is of one rank: add "
            f"--rank {most}, which has most of the path."
        )
    if suffix not in writers:
        raise OutputError(f"unknown format {suffix!r}.", path=out, hint=hint)
    writers[suffix](out, **options)


def _is_flame(out: Path) -> bool:
    """Whether the name of a file is that of a flame graph."""
    return out.name.removesuffix(".gz").endswith((SPEEDSCOPE, ".collapsed"))


def why(
    paths: options.RunPaths,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Event, by name, glob, regex or row; or a time from the start of the trace "
            "(12.3ms): why is the device idle then?",
        ),
    ],
    *,
    rank: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Of a job: the rank that the event is on."),
    ] = None,
    instance: Annotated[
        int | None,
        typer.Option(help="Which of several events, in order of time; -1: the last."),
    ] = None,
    device: Annotated[int | None, typer.Option(min=0, help="With a time: which device.")] = None,
    end: Annotated[bool, typer.Option("--end", help="Why it ended only then.")] = False,
    window: options.Window = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Also write the chain: .pftrace (Perfetto) or .dot."),
    ] = None,
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    beside: options.Beside = None,
    capture: options.Capture = "",
    workers: options.Workers = 0,
    dask: options.Dask = "",
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Say why an event started only then: the chain of what it waited for, on other ranks, too.

    Prints sentences; --format csv, json or md, or --columns, prints the segments of the chain.
    """
    source = given(paths, None, capture, beside, form)
    with shown_progress(quiet=quiet), executor_of(workers, dask) as executor:
        reading = LoadOptions(infer=infer)
        run = source.run(source.one_capture, reading, window, executor)
        if isinstance(run, TraceGraph):
            begin_stage("Following the chain")
            chain = run.why(what, instance=instance, device=device, end=end)
            found: Why | JobWhy = chain
            frame = chain.chain
        else:
            if rank is None:
                ranks = ", ".join(map(str, run.ranks[:4]))
                raise QueryError(
                    f"{source.name} has {len(run)} ranks.",
                    hint=f"--rank N says which one the event is on: {ranks}, …",
                )
            begin_stage("Following the chain across ranks")
            found = run.why(rank, what, instance=instance, device=device, end=end)
            frame = found.segments[::-1]
        if out is not None:
            begin_stage(f"Writing {out}")
            write_path(found, out)
    console, aside = output(), notices(quiet=quiet)
    if form is Format.TABLE and not columns:
        for number, said in enumerate(found.sentences):
            print_sentence(console, said, style="" if number else "bold", indent=2 * bool(number))
    else:
        print_frame(console, frame, form, columns=columns, aside=aside)
    if out is not None:
        aside.print(f"Wrote {out}")
