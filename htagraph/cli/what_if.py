"""`htagraph what-if`: what would help, and by how much; or what one change would do."""

from __future__ import annotations

import json
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from htagraph.cli.console import Waiting, notices
from htagraph.cli.options import (
    BesideOption,
    CaptureOption,
    ColumnsOption,
    DaskOption,
    FormatOption,
    InferOption,
    QuietOption,
    RankOption,
    ReportArgument,
    StacksOption,
    WindowOption,
    WorkersOption,
    windowed,
)
from htagraph.cli.predictions import print_next, print_opportunities, print_prediction
from htagraph.cli.ranks import compiled_trace, executor_of, loaded_job, print_captures, windowed_job
from htagraph.cli.sources import Source
from htagraph.cli.tables import Format
from htagraph.errors import OutputError, QueryError
from htagraph.job.scenario import JobScenario
from htagraph.lookup.find_window import WHOLE
from htagraph.lookup.steady_steps import representative_window
from htagraph.readers.captures import CaptureName
from htagraph.replay.change_options import ChangeOptions
from htagraph.replay.changes import Change
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import opportunities_document
from htagraph.reports.prediction import prediction_document
from htagraph.reports.summary import Summary
from htagraph.scenario import Scenario
from htagraph.scenario import what_if as replayed
from htagraph.writers.text_file import write_text

__all__ = ["what_if"]

_OF_A_STEP = f"Asked of the representative one of the steps that are alike; -w {WHOLE}: of all."
_PERFETTO = (".pftrace", ".pftrace.gz")


def _named(option: str, metavar: str, meaning: str) -> Any:  # noqa: ANN401  typer's own type
    """Option that can be given several times."""
    return typer.Option(option, metavar=metavar, help=f"{meaning} Repeatable.")


def what_if(
    paths: ReportArgument,
    *,
    rank: RankOption = None,
    window: WindowOption = "",
    scale: Annotated[
        list[str] | None, _named("--scale", "NAME=FACTOR", "Take FACTOR times as long.")
    ] = None,
    remove: Annotated[
        list[str] | None,
        _named("--remove", "NAME", "Are not there; `sync`: no call waits for the device."),
    ] = None,
    no_wait: Annotated[
        list[str] | None, _named("--no-wait", "NAME", "Do not wait for the device.")
    ] = None,
    insert: Annotated[
        list[str] | None,
        _named("--insert", "NAME=TIME", "Are followed by as much more (50us, 2ms)."),
    ] = None,
    overlap: Annotated[
        list[str] | None, _named("--overlap", "NAME", "Run beside all other device work.")
    ] = None,
    fuse: Annotated[
        list[str] | None,
        _named("--fuse", "NAME,NAME,…", "Kernels that follow each other become one."),
    ] = None,
    prefetch: Annotated[
        bool, typer.Option("--prefetch", help="Data is loaded beside the step, one batch ahead.")
    ] = False,
    graphed: Annotated[
        bool, typer.Option("--graphed", help="Each step is replayed as a CUDA or HIP graph.")
    ] = False,
    bandwidth: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Collectives move data FACTOR times as fast."),
    ] = None,
    equalise: Annotated[
        bool,
        typer.Option("--equalise", help="Of a job: no rank comes later than the median rank."),
    ] = False,
    on_rank: Annotated[
        int | None,
        typer.Option(
            "--on-rank", metavar="N", help="Of a job: the changes are made on this rank only."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write the run as it was and as it would be (of a job, as it would be): "
            ".pftrace (Perfetto)."
        ),
    ] = None,
    json_file: Annotated[
        str,
        typer.Option(
            "--json", metavar="FILE", help="Also write the answer as JSON; - prints only the JSON."
        ),
    ] = "",
    columns: ColumnsOption = "",
    form: FormatOption = Format.TABLE,
    beside: BesideOption = None,
    capture: CaptureOption = "",
    workers: WorkersOption = 0,
    dask: DaskOption = "",
    stacks: StacksOption = False,
    infer: InferOption = True,
    quiet: QuietOption = False,
) -> None:
    """Say what would help, and by how much; with changes, what these would do.

    NAME is a name, glob or regex of kernels, operators or calls. Options combine into one run. A
    folder holds the ranks of a job, which are replayed together.
    """
    if capture == "list":
        print_captures(Source.of(paths, rank, capture).found, form)
        return
    options = ChangeOptions(
        scale=scale,
        remove=remove,
        no_wait=no_wait,
        insert=insert,
        overlap=overlap,
        fuse=fuse,
        prefetch=prefetch,
        graphed=graphed,
        bandwidth=bandwidth,
        equalise=equalise,
        rank=on_rank,
    )
    changes = options.changes()
    _check_out(out, has_changes=bool(changes))
    source = Source.of(paths, rank, capture, beside or ())
    if options.needs_job and not source.is_job:
        hint = "give the folder with the traces of its ranks."
        raise QueryError("--equalise and --on-rank are about the ranks of a job.", hint=hint)
    with Waiting(quiet=quiet).shown() as waiting, executor_of(workers, dask) as executor:
        made = _Asking(waiting, source, window, changes, stacks=stacks, infer=infer)
        number = source.one_capture
        scenario, summary, caveats = (
            made.of_job(number, executor) if source.is_job else made.of_trace(number)
        )
        waiting.stage("Replaying")
        document = prediction_document(scenario) if changes else opportunities_document(summary)
        if out is not None:
            waiting.stage(f"Writing {out}")
            run = scenario if isinstance(scenario, Scenario) else scenario.critical_path()
            run.to_perfetto(out)
    aside = notices(quiet=quiet)
    if json_file:
        text = json.dumps({"file": str(source.path), **document}, indent=2) + "\n"
        if json_file == "-":
            typer.echo(text, nl=False)
        else:
            write_text(Path(json_file), text)
    if json_file != "-":
        show = print_prediction if changes else print_opportunities
        show(scenario, summary, caveats, (form, columns), aside)
    for file in filter(None, [out, None if json_file in ("", "-") else json_file]):
        aside.print(f"Wrote {file}", markup=False)
    if form is Format.TABLE and json_file != "-":
        print_next(source, changed=bool(changes), out=out, aside=aside)


@dataclass(frozen=True)
class _Asking:
    """What is asked of a path: it gives a scenario, a summary, and caveats on the window."""

    waiting: Waiting
    source: Source
    window: str
    changes: tuple[Change, ...]
    stacks: bool
    infer: bool

    def of_trace(self, capture: CaptureName) -> tuple[Scenario, Summary, list[str]]:
        """Read a trace, and ask about its representative step, unless a window is named."""
        loaded, graph = compiled_trace(
            self.waiting, self.source, capture, stacks=self.stacks, infer=self.infer
        )
        step = None if self.window else representative_window(graph.dag)
        summary = (
            Summary(loaded, windowed(graph, self.window))
            if self.window
            else Summary(loaded, replace(graph, interval=step))
            if step is not None
            else Summary.by_default(loaded, graph)
        )
        scenario = replayed(summary.graph, *self.changes, on="window")
        return scenario, summary, [_OF_A_STEP] if step is not None else summary.window_caveats

    def of_job(
        self, capture: CaptureName, executor: Executor | None
    ) -> tuple[JobScenario, JobSummary, list[str]]:
        """Read the ranks of a job, and open each once for all that is asked of it."""
        job = loaded_job(
            self.waiting,
            self.source,
            executor,
            stacks=self.stacks,
            infer=self.infer,
            capture=capture,
        )
        asked = windowed_job(job, self.window)
        scenario = replayed(asked, *self.changes)
        self.waiting.stage("Finding the path across ranks")
        if not asked.is_replayed:
            _ = scenario.rehearsal  # raises where no replay is possible, before ranks are visited
        summary = JobSummary(asked, self.source.name, however_large=True)
        _ = summary.facts  # visits every rank, while there are processes to do it
        return scenario, summary, summary.caveats


def _check_out(out: Path | None, *, has_changes: bool) -> None:
    """Check where the run is to be written, before anything is read."""
    if out is None:
        return
    if not out.name.endswith(_PERFETTO):
        hint = "end the name in .pftrace, or .pftrace.gz."
        raise OutputError("the run is written as a Perfetto trace.", path=out, hint=hint)
    if not has_changes:
        hint = "name one, for example --scale 'gemm*=0.5'."
        raise QueryError("--out writes the run under changes, and there are none.", hint=hint)
