"""`htagraph info`: what a trace holds and lacks, what was repaired, how to record the rest."""

from __future__ import annotations

import pandas as pd

from htagraph.cli import options
from htagraph.cli.console import output, shown_progress
from htagraph.cli.inputs import given
from htagraph.cli.tables import Format, print_frame, print_titled
from htagraph.lookup.find_window import WHOLE
from htagraph.model.kinds import EventKind
from htagraph.model.progress import begin_stage
from htagraph.reports.doctor import capture_cost, examine
from htagraph.reports.summary import Summary
from htagraph.run.compiled import LoadOptions
from htagraph.run.trace import Trace


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
