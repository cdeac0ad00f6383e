"""`htagraph info`: what is in a trace and what is not, what was repaired, and how to record what is missing."""

from __future__ import annotations

import pandas as pd

from htagraph.cli.console import Waiting, output
from htagraph.cli.options import FormatOption, QuietOption, TraceArgument
from htagraph.cli.tables import Format, print_frame, print_titled, rich_table
from htagraph.model.kinds import EventKind
from htagraph.report.summary import Summary
from htagraph.trace import Trace

__all__ = ["info"]


def info(
    trace: TraceArgument, *, form: FormatOption = Format.TABLE, quiet: QuietOption = False
) -> None:
    """Say what is in a trace, what is missing, which answers are weaker for it, and how to record it."""
    with Waiting(quiet=quiet).shown() as waiting:
        loaded = waiting.load(trace)
        waiting.stage("Checking")
        summary = Summary(loaded, loaded.compile())
        quality = summary.quality
    console = output()
    if form is not Format.TABLE:
        print_frame(console, quality, form)
        return
    console.print(summary.name, style="bold", markup=False)
    console.print(summary.facts, markup=False)
    print_titled(console, "Recorded with", rich_table(_metadata(loaded), header=False))
    print_titled(console, "Events", rich_table(_categories(loaded)))
    print_titled(console, "Checks", rich_table(quality))
    missing = _not_recorded(loaded)
    if len(missing):
        print_titled(
            console, "Not recorded, and how to record it", rich_table(missing, header=False)
        )
    if len(loaded.repairs):
        print_titled(console, "Repairs of the file", rich_table(loaded.repairs))
    else:
        console.print("\nThe file needed no repair.")


_HOW_TO_RECORD = {
    "python_function": (
        "Python stacks",
        "profile(with_stack=True); they make a file several times larger",
    ),
    "cuda_sync": (
        "waits of host and streams",
        "profile(experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))",
    ),
    "gpu_user_annotation": (
        "annotations on the device",
        "name parts with torch.profiler.record_function",
    ),
}
"""What useful categories are, and the settings of the profiler that record them."""


def _not_recorded(trace: Trace) -> pd.DataFrame:
    """Return the useful categories that the file does not have, and how to record each."""
    present = set(trace.events["category"]) | set(trace.skipped)
    rows = [how for category, how in _HOW_TO_RECORD.items() if category not in present]
    return pd.DataFrame(rows, columns=["check", "consequence"])


def _metadata(trace: Trace) -> pd.DataFrame:
    """Return what the file says beside events, one line each, long values abbreviated to what they are."""
    devices = trace.metadata.get("deviceProperties") or ()
    names = [device.get("name", "?") for device in devices if isinstance(device, dict)]
    plain = {
        name: str(value)
        for name, value in trace.metadata.items()
        if isinstance(value, str | int | float)
    }
    job = trace.metadata.get("distributedInfo")
    rows = {
        "rank": f"{trace.rank} ({trace.rank_source})",
        **({"devices": f"{len(names)} x {', '.join(dict.fromkeys(names))}"} if names else {}),
        **(
            {"backend": str(job.get("backend", "?"))}
            if isinstance(job, dict) and "backend" in job
            else {}
        ),
        **plain,
    }
    return pd.DataFrame({"kind": list(rows), "name": list(rows.values())})


def _categories(trace: Trace) -> pd.DataFrame:
    """Return how many events of each category were loaded and how many were not."""
    loaded = trace.events["category"].value_counts()
    kinds = trace.events.groupby("category", sort=False)["kind"].first()
    rows = [
        (name, n, 0, str(kinds[name]))
        for name, n in zip(loaded.index, loaded.tolist(), strict=True)
    ]
    rows += [(name, 0, n, "") for name, n in trace.skipped.items()]
    frame = pd.DataFrame(rows, columns=["kind", "n_loaded", "n_skipped", "name"])
    frame["name"] = frame["name"].where(
        frame["name"] != EventKind.OTHER.label, "unknown, kept out of the graph"
    )
    return frame[["kind", "n_loaded", "n_skipped", "name"]].rename(
        columns={"kind": "name", "name": "kind"}
    )
