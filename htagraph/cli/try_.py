"""`htagraph try`: predict what a change saves, run the changed program, and decide."""

from __future__ import annotations

import os
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from htagraph.capture.asked import asking
from htagraph.cli import options
from htagraph.cli.console import notices, output, print_notes, print_sentence, shown_progress
from htagraph.cli.inputs import Source
from htagraph.comparison.decision import State
from htagraph.errors import HTAGraphError, TraceFormatError, TraceNotFoundError
from htagraph.job.job import Job
from htagraph.model.progress import begin_stage
from htagraph.readers.discover import find_traces
from htagraph.readers.storage import path_of
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.kept_runs import KeptRuns
from htagraph.reports.markdown import block, escaped, write_step_summary
from htagraph.reports.plan import Plan, Recorded, plan_text
from htagraph.reports.summary import Summary
from htagraph.run.compiled import LoadOptions
from htagraph.writers.output_file import new_folder, write_text

EXIT_CODES: dict[State, int] = {
    "confirmed": 0,
    "unclear": 1,
    "not comparable": 1,
    "smaller": 3,
    "no effect": 3,
    "worse": 3,
}
"""How a try ends; 2 is wrong usage, as everywhere."""

_STDERR = 2
"""File of the error stream: the output of the program goes there."""

_STYLES: dict[State, str] = {"confirmed": "green", "unclear": "yellow", "not comparable": "yellow"}

_HOW = (
    'in the script, put `with htagraph.profile("runs/") as profiler:` around the steps and '
    'profiler.step() after each; or pass on_trace_ready=htagraph.handler("runs/") to its profiler.'
)


def try_(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", parser=path_of, help="Recording before the change: a trace or a folder."
        ),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- CMD...", help="The changed program. Without, only the prediction is made."
        ),
    ] = None,
    *,
    change: Annotated[
        str,
        typer.Option(metavar="OPTIONS", help="The change, as options of what-if: '--prefetch 4'."),
    ] = "",
    fix: Annotated[
        int, typer.Option(metavar="N", min=1, help="The fix of the Nth finding of the report.")
    ] = 1,
    before: Annotated[
        str,
        typer.Option(
            metavar="CMD", help="The program without the change, to run in turn with the other."
        ),
    ] = "",
    after: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            parser=path_of,
            help="Recording with the change, if made elsewhere. Repeatable.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", min=1, help="Recordings of each side.")] = 1,
    out: Annotated[
        Path, typer.Option(help="Folder for the plan, recordings, the decision.")
    ] = Path("htagraph-try"),
    quiet: options.Quiet = False,
) -> None:
    """Predict what a change saves, run the changed program, and say whether it did.

    The program has to use htagraph.profile or htagraph.handler, which take folder and steps from
    this command. Exit code 0: confirmed, 1: unclear or not comparable, 2: wrong usage, 3: smaller,
    no effect or worse. See docs/try.md.
    """
    if before and not command:
        raise typer.BadParameter("--before needs the changed program, after --.")
    folder = out / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    aside, console = notices(quiet=quiet), output()
    with shown_progress(quiet=quiet):
        first = recorded(run)
        begin_stage("Replaying")
        plan = Plan.of(first, change, fix)
        seed = int.from_bytes(os.urandom(4))
        new_folder(folder)
        write_text(folder / "plan.json", plan_text(plan.document(seed=seed, command=command or [])))
    if plan.fix:
        print_sentence(console, f"{plan.finding.title}: {plan.fix}" if plan.finding else "")
    print_sentence(console, plan.verdict())
    sides = {"before": shlex.split(before), "after": command or []}
    runs: dict[str, list[Recorded]] = {
        "before": [],
        "after": [recorded(one) for one in after or ()],
    }
    order = Random(seed)  # noqa: S311  which side is first, not a secret
    for number in range(repeat):
        both = [side for side in ("before", "after") if sides[side]]
        for side in order.sample(both, len(both)):
            place = folder / f"{side}-{number + 1}"
            aside.print(f"Recording {place}: {shlex.join(sides[side])}", style="dim", markup=False)
            _run(sides[side], place, plan)
            with shown_progress(quiet=quiet):
                runs[side].append(recorded(place))
    if not runs["after"]:
        asked = shlex.join(
            [f"{key}={value}" for key, value in variables(plan, folder / "after-1").items()]
        )
        aside.print(
            f"Next: {asked} CMD, then htagraph try … --after {folder}/after-1", markup=False
        )
        return
    decision = plan.decide(tuple(runs["before"]) or (first,), tuple(runs["after"]))
    now = runs["after"][-1].limits
    write_text(folder / "decision.json", plan_text(decision.document() | {"limits_now": now}))
    for one in runs["after"]:
        KeptRuns(out).keep(one.summary, "try")
    said = [f"**{escaped(decision.verdict())}**", *map(escaped, (plan.verdict(), f"Now: {now}"))]
    write_step_summary(block(said))
    style = _STYLES.get(decision.state, "red")
    print_sentence(console, decision.verdict(), style=f"bold {style}")
    print_notes(console, [*decision.notes, f"Now: {now}"])
    aside.print(f"Wrote {folder}/plan.json, decision.json", markup=False)
    if code := EXIT_CODES[decision.state]:
        raise typer.Exit(code)


def variables(plan: Plan, folder: Path) -> dict[str, str]:
    """The environment in which a program records as the plan wants it."""
    return asking(folder=folder.absolute(), **plan.recorded.settings.asked)


def recorded(path: Path) -> Recorded:
    """A recorded run."""
    source = Source.of(path)
    found = source.opened(reading=LoadOptions(stacks=None))
    if isinstance(found, Job):
        return Recorded(JobSummary(found, source.name))
    return Recorded(Summary(*found))


def _run(command: list[str], folder: Path, plan: Plan) -> None:
    """Run a program so that it records into a folder; its output goes to the error stream."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, **variables(plan, folder)}
    try:
        done = subprocess.run(command, env=env, stdout=_STDERR, check=False)  # noqa: S603  the user's own
    except OSError as error:
        raise HTAGraphError(f"{shlex.join(command)}: {error.strerror}.") from error
    if done.returncode:
        raise HTAGraphError(f"{shlex.join(command)}: ended with exit code {done.returncode}.")
    try:
        find_traces(folder)
    except TraceFormatError:
        said = f"{shlex.join(command)} left no recording."
        raise TraceNotFoundError(said, path=folder, hint=_HOW) from None
