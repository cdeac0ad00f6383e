"""The summary as JSON, for programs: a stable document with a version.

That of a trace has these keys; later documents of the same version only add some::

    schema          "htagraph.report"
    version         5
    trace           file, rank, rank_source, world_size, n_events, n_kernels, n_steps,
                    start_ns, dur_ns
    window          name, start_ns, end_ns, dur_ns
    caveats         [sentence]: what one has to know to read the findings
    opening         null, or the work from before the profile that the trace opens with: dur_ns,
                    start_ns of what follows, is_left_out of the window
    replays         null, or where most device time is replayed from captured graphs: n_replays,
                    window_ns, inside_ns, gap_ns, idle_ns, late_ns, bound (launch, graph, kernels
                    or ""), sentence
    verdict         headline, state (first cause, one rank, side by side, work bound, nothing,
                    hidden chain, withheld), window_ns, n_steps (0 if no steps tile the window),
                    items: all causes, the largest cost first: causes (two if they run side by
                    side), title, cost_ns (null if nothing was replayed), alone_ns {cause: ns},
                    path_ns, is_card, ranks {rank: ns}, detail, longest_start_ns, longest_ns,
                    fix [do, why, change, saves_ns, low_ns, high_ns, options] of each cause,
                    evidence [cause, name, op, frame, event, label, dur_ns, bound, n_segments]
                    apart {cause: ns}: with path_ns of all items it adds up to the window
                    also, damage [sentence], notes [sentence]
    critical_path   dur_ns, unknown_share, inferred_share,
                    by_rule, by_bound, by_op, by_name: [group, dur_ns, share, n_segments]
    steps           step, dur_ns, bound, bound_share, next_bound, next_share
    utilization     one row per device, as `utilization` answers
    utilization_losses    the largest 20 uses of warp slots, as `utilization_losses` answers
    quality         check, n_good, n_all, share, verdict, consequence
    repairs         kind, n, first_offset, detail, damage (its kind; "" if harmless)
    skipped         {category: number of events}
    files           {what: path} of the files of the report
    profile         what a later comparison needs (`htagraph diff`, `htagraph check --baseline`):
                    version (another one is refused), name, unit ("step" or "window"), devices
                    (names, "" for unknown), world_size (0 for unknown), n_ranks, n_steps,
                    kinds [n_steps, n_compared, has_first, has_last, said] (steps that do the same
                    work: all, and the typical ones; whether they include those of the trace; why
                    they are outliers, if they are),
                    steps_ns (lengths of typical steps, the first 200), n_odd, left_out [sentence]:
                    steps that are not compared, and why,
                    parts [part, bound, name, kind (a row), calls, total_ns, std_ns, first_ns,
                    last_ns, least_ns, most_ns]: sums over the typical steps of a kind, the standard
                    deviation from step to step, the first, last, shortest and longest of them.
                    `part` is "step" (the whole), "bound", "op" or "name" (of the critical path;
                    each adds up to the whole), "kernel", "operator" (with what it calls) or
                    "device" (idle, compute, exposed communication and memory). The longest 100 of
                    "op" and "name" and 150 of "kernel" and "operator"; all others are "(other)".

That of a job::

    schema          "htagraph.job_report"
    version         6
    job             name, ranks, missing_ranks, caveats, n_events, n_collectives
    failures        path, error
    window          name, start_ns, end_ns, dur_ns, in common time
    verdict         as above
    critical_path   dur_ns, by_rank, by_bound: [group, dur_ns, share, n_segments]
    stragglers, clocks, devices, utilization    one row per rank, or per device of a rank
    weak_checks     rank, check, n_good, n_all, share, verdict, consequence
    files           {what: path} of the files of the report
    profile         as above; a step is one of the job, kernels, operators and devices are means
                    over its ranks

Times are integer nanoseconds, shares fractions of one. The path_ns of all items and what is apart
add up to the window; so do the groups of ``by_bound`` and ``by_rank``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from htagraph.comparison.job_profiling import job_profile
from htagraph.comparison.profiling import graph_profile
from htagraph.comparison.run_profile import RunProfile
from htagraph.explain.self_time import replay_time
from htagraph.findings.window_bounds import replay_bound
from htagraph.job.path import JobPath
from htagraph.model.window import Window
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary

SCHEMA = "htagraph.report"
VERSION = 5
JOB_SCHEMA = "htagraph.job_report"
JOB_VERSION = 6
OPPORTUNITIES_SCHEMA = "htagraph.opportunities"
OPPORTUNITIES_VERSION = 1
_TOP = 20
"""Groups of the path by operator and name, and losses, in the document."""
_N_OPPORTUNITIES = 30
"""Opportunities in the document."""


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as dicts of plain Python values; a number that is none is None."""
    values = frame.astype(object).where(frame.notna(), None)  # JSON knows no NaN
    return values.rename(columns=str).to_dict("records")  # type: ignore[return-value]


def _groups(frame: pd.DataFrame, top: int | None = None) -> list[dict[str, Any]]:
    """Groups of a breakdown, at most the `top` first."""
    return records(frame.head(top or len(frame)).rename_axis("group").reset_index())


def opportunities_document(summary: Summary | JobSummary) -> dict[str, Any]:
    """What would help, as a dict that `json.dumps` accepts.

    ``schema``, ``version``, ``window`` (its name), ``before_ns``, ``caveats``, ``damage``
    (sentences), ``withheld`` ("", or why there is no answer) and ``opportunities``: the first 30
    changes that would help, as `opportunities` answers; none if withheld.
    """
    most = 0 if summary.verdict.withheld else _N_OPPORTUNITIES
    return {
        "schema": OPPORTUNITIES_SCHEMA,
        "version": OPPORTUNITIES_VERSION,
        "window": (
            summary.path.name if isinstance(summary, JobSummary) else summary.graph.interval.name
        ),
        "before_ns": summary.path.dur_ns,
        "caveats": summary.caveats,
        "damage": list(summary.damage),
        "withheld": summary.verdict.withheld,
        "opportunities": records(summary.opportunities.head(most)),
    }


def _window(of: Window | JobPath) -> dict[str, Any]:
    """A window, or that of a job's path, as plain values."""
    names = ("name", "start_ns", "end_ns", "dur_ns", "n_steps", "step_ns")
    return {name: getattr(of, name) for name in names}


def _files(files: Mapping[str, Path] | None) -> dict[str, str]:
    """Files of a report as plain values."""
    return {what: str(file) for what, file in (files or {}).items()}


def summary_profile(summary: Summary | JobSummary) -> RunProfile:
    """The profile of what a summary is of."""
    if isinstance(summary, JobSummary):
        return job_profile(summary.job, name=summary.name)
    return graph_profile(summary.graph, name=summary.name, world_size=summary.world_size)


def json_document(
    summary: Summary | JobSummary, files: Mapping[str, Path] | None = None
) -> dict[str, Any]:
    """Summary of a trace or a job as a dict that `json.dumps` accepts; keys as above."""
    if isinstance(summary, JobSummary):
        return job_document(summary, files)
    trace, path, window = summary.trace, summary.path, summary.graph.interval
    span, said = summary.graph.dag.span, summary.verdict.replays
    replays = replay_time(summary.graph.dag, window) if said else None
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "trace": {
            "file": None if trace.path is None else str(trace.path),
            "rank": trace.rank,
            "rank_source": trace.rank_source,
            "world_size": summary.world_size,
            "n_events": len(trace.recording.events),
            "n_kernels": summary.n_kernels,
            "n_steps": len(trace.steps),
            "start_ns": span.start_ns,
            "dur_ns": span.dur_ns,
        },
        "window": _window(window),
        "caveats": summary.caveats,
        "replays": replays
        and {**replays._asdict(), "bound": replay_bound(replays), "sentence": said},
        "verdict": summary.verdict.document(),
        "critical_path": {
            "dur_ns": path.dur_ns,
            "unknown_share": path.unknown_share,
            "inferred_share": path.inferred_share,
            "by_rule": _groups(path.breakdown(by="rule")),
            "by_bound": _groups(summary.by_bound),
            "by_op": _groups(summary.by_op, _TOP),
            "by_name": _groups(summary.by_name, _TOP),
        },
        "steps": records(summary.by_step),
        "utilization": records(summary.used),
        "utilization_losses": records(summary.losses.head(_TOP)),
        "quality": records(summary.quality),
        "repairs": records(trace.repairs),
        "skipped": dict(trace.skipped),
        "files": _files(files),
        "profile": summary_profile(summary).document(),
    }


def job_document(summary: JobSummary, files: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """Summary of a job as a dict that `json.dumps` accepts; keys as above."""
    job, path = summary.job, summary.path
    return {
        "schema": JOB_SCHEMA,
        "version": JOB_VERSION,
        "job": {
            "name": summary.name,
            "ranks": list(job.ranks),
            "missing_ranks": list(job.missing_ranks),
            "caveats": summary.caveats,
            "n_events": sum(rank.n_events for rank in job.summaries.values()),
            "n_collectives": int(job.collectives()["match"].nunique()),
        },
        "failures": records(summary.failures),
        "window": _window(path),
        "verdict": summary.verdict.document(),
        "critical_path": {
            "dur_ns": path.dur_ns,
            "by_rank": _groups(summary.by_rank),
            "by_bound": _groups(summary.by_bound),
        },
        "stragglers": records(summary.stragglers),
        "clocks": records(job.clocks),
        "devices": records(summary.devices),
        "utilization": records(summary.used),
        "weak_checks": records(summary.weak_checks),
        "files": _files(files),
        "profile": summary_profile(summary).document(),
    }
