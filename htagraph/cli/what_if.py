"""`htagraph what-if`: what would help, and by how much; or what one change would do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.console import Console

from htagraph.cli.changes import Asked
from htagraph.cli.console import Waiting, notices, output
from htagraph.cli.files import write_text
from htagraph.cli.options import (
    ColumnsOption,
    FormatOption,
    InferOption,
    QuietOption,
    StacksOption,
    TraceArgument,
    WindowOption,
    windowed,
)
from htagraph.cli.tables import Format, print_facts, print_frame, print_titled
from htagraph.errors import OutputError, QueryError
from htagraph.lookup.find_window import WHOLE
from htagraph.lookup.steady_steps import representative_window
from htagraph.model.units import human_duration
from htagraph.report.json_document import opportunities_document
from htagraph.report.prediction import (
    bounds_of,
    prediction_document,
    prediction_in_words,
    readings_of,
)
from htagraph.report.summary import Summary
from htagraph.report.what_helps import UNCHANGED, notes_on
from htagraph.scenario import Scenario
from htagraph.scenario import what_if as replayed

__all__ = ["what_if"]

_OF_A_STEP = f"Asked of the representative one of the steps that are alike; -w {WHOLE}: of all."
_MAX_ROWS = 20
_PERFETTO = (".pftrace", ".pftrace.gz")


def _named(option: str, metavar: str, meaning: str) -> Any:  # noqa: ANN401  typer's own type
    """Option that can be given several times."""
    return typer.Option(option, metavar=metavar, help=f"{meaning} Repeatable.")


def what_if(
    trace: TraceArgument,
    *,
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
    out: Annotated[
        Path | None,
        typer.Option(help="Also write the run as it was and as it would be: .pftrace (Perfetto)."),
    ] = None,
    json_file: Annotated[
        str,
        typer.Option(
            "--json", metavar="FILE", help="Also write the answer as JSON; - prints only the JSON."
        ),
    ] = "",
    columns: ColumnsOption = "",
    form: FormatOption = Format.TABLE,
    stacks: StacksOption = False,
    infer: InferOption = True,
    quiet: QuietOption = False,
) -> None:
    """Say what would help, and by how much; with changes, what these would do.

    NAME is a name, glob or regex of kernels, operators or calls. Options combine into one run.
    """
    changes = Asked(
        scale, remove, no_wait, insert, overlap, fuse, prefetch, graphed, bandwidth
    ).changes()
    _check_out(out, has_changes=bool(changes))
    with Waiting(quiet=quiet).shown() as waiting:
        loaded = waiting.load(trace, stacks=stacks)
        waiting.stage("Compiling the graph")
        graph = loaded.compile(infer=infer)
        step = None if window else representative_window(graph.dag)
        summary = (
            Summary(loaded, windowed(graph, window))
            if window
            else Summary(loaded, replace(graph, interval=step))
            if step is not None
            else Summary.by_default(loaded, graph)
        )
        waiting.stage("Replaying")
        scenario = replayed(summary.graph, *changes, on="window")
        if out is not None:
            waiting.stage(f"Writing {out}")
            scenario.to_perfetto(out)
    beside = notices(quiet=quiet)
    if json_file:
        document = prediction_document(scenario) if changes else opportunities_document(summary)
        text = json.dumps({"file": str(trace), **document}, indent=2) + "\n"
        if json_file == "-":
            typer.echo(text, nl=False)
        else:
            write_text(Path(json_file), text)
    if json_file != "-":
        caveats = [_OF_A_STEP] if step is not None else summary.window_caveats
        show = _print_prediction if changes else _print_opportunities
        show(scenario, summary, caveats, (form, columns), beside)
    for file in filter(None, [out, None if json_file in ("", "-") else json_file]):
        beside.print(f"Wrote {file}", markup=False)
    if form is Format.TABLE and json_file != "-":
        _print_next(trace, changed=bool(changes), out=out, beside=beside)


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


def _print_opportunities(
    scenario: Scenario,
    summary: Summary,
    caveats: Sequence[str],
    asked: tuple[Format, str],
    beside: Console,
) -> None:
    """Print the changes that would help, largest saving first."""
    console, (form, columns) = output(), asked
    if columns or form is not Format.TABLE:
        print_frame(console, summary.opportunities, form, columns=columns, beside=beside)
        return
    print_facts(console, summary, caveats)
    length = human_duration(summary.path.dur_ns)
    console.print(f"What would help {summary.window_name} ({length})", style="bold", markup=False)
    if scenario.withheld:
        console.print(prediction_in_words(scenario), style="yellow", markup=False)
        return
    helpful = summary.what_helps
    if helpful.empty:
        console.print(UNCHANGED, markup=False)
        return
    print_frame(console, helpful.head(_MAX_ROWS), form)
    notes = f"{notes_on(helpful)} {_sentence(scenario.hold_out)}"
    console.print(notes, style="dim", markup=False)
    n_more = len(helpful) - _MAX_ROWS
    if n_more > 0:
        beside.print(f"… and {n_more:,} more: --format csv prints all.", style="dim")


def _print_prediction(
    scenario: Scenario,
    summary: Summary,
    caveats: Sequence[str],
    asked: tuple[Format, str],
    beside: Console,
) -> None:
    """Print what the changes would do: the saving, each reading, and what bounds the run then."""
    console, (form, columns) = output(), asked
    found = readings_of(scenario)
    if columns or form is not Format.TABLE:
        print_frame(console, found, form, columns=columns, beside=beside)
        return
    print_facts(console, summary, caveats)
    said = ", ".join(map(str, scenario.changes))
    console.print(f"What if: {said}; {summary.window_name}", style="bold", markup=False)
    console.print(prediction_in_words(scenario), markup=False)
    if scenario.withheld:
        return
    console.print(_sentence(scenario.hold_out), style="dim", markup=False)
    print_titled(console, "What it saves, by what the trace leaves open", found)
    print_titled(console, "What bounds it", bounds_of(scenario))


def _sentence(said: object) -> str:
    """What is said, as a sentence."""
    text = str(said)
    return f"{text[0].upper()}{text[1:]}."


def _print_next(trace: Path, *, changed: bool, out: Path | None, beside: Console) -> None:
    """Print where to go on."""
    name = quote(str(trace))
    said = (
        [
            f"Both runs in Perfetto: htagraph view {quote(str(out))}"
            if out
            else "Both runs in Perfetto, one below the other: --out what-if.pftrace",
            f"What else would help: htagraph what-if {name}",
        ]
        if changed
        else [f"One change in full: htagraph what-if {name} --scale 'NAME=0.5' (--help: others)"]
    )
    beside.print()
    for line in said:
        beside.print(line, style="dim", markup=False)
