"""The row of figures on top of the page, each from an answer in the section that it links to."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import pandas as pd

from htagraph.model.kinds import Bound
from htagraph.model.labels import name_label
from htagraph.model.units import human_count, human_duration
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary

__all__ = ["KeyFigure", "html_figures", "key_figures"]


@dataclass(frozen=True)
class KeyFigure:
    """One number, with its name and what it is a share of.

    Parameters
    ----------
    text : str
        The number as people read it, a dash if it is not known.
    about : str
        What it is of, or why it is not known.
    section : str
        Section with the answer.
    value : float, optional
        The exact number: nanoseconds or a share.
    """

    name: str
    text: str
    about: str
    section: str
    value: float | None = None

    @classmethod
    def unknown(cls, name: str, why: str, section: str) -> KeyFigure:
        """A figure that is not known."""
        return cls(name, "–", why, section)


def key_figures(summary: Summary | JobSummary, devices: pd.DataFrame) -> list[KeyFigure]:
    """The figures of the page of a rank or a job.

    Parameters
    ----------
    devices : DataFrame, schema `answers.TEMPORAL_BREAKDOWN`
        Of a job with a column ``rank``.
    """
    used = _used(summary.used)
    figures = [_step(summary), *_of_devices(devices), used, _unexplained(summary)]
    return [*figures, _saving(summary)]


def html_figures(figures: list[KeyFigure]) -> str:
    """The figures as a list of links to their sections."""
    items = ""
    for figure in figures:
        exact = "" if figure.value is None else f' data-value="{figure.value!r}"'
        items += f'<li><a href="#{figure.section}"{exact}><span>{escape(figure.name)}</span>'
        items += f"<strong>{escape(figure.text)}</strong><small>{escape(figure.about)}</small>"
        items += "</a></li>"
    return f'<ul class="figures" aria-label="Figures">{items}</ul>'


def _step(summary: Summary | JobSummary) -> KeyFigure:
    """Step time: the mean of the steps that the window consists of."""
    path = summary.path
    if not path.n_steps:
        return KeyFigure.unknown("step time", "this window is not made of steps", "steps")
    about = f"mean of {path.n_steps:,} steps" if path.n_steps > 1 else "the only step"
    return KeyFigure("step time", human_duration(path.step_ns), about, "steps", path.step_ns)


def _of_devices(devices: pd.DataFrame) -> list[KeyFigure]:
    """Shares of the window in which devices are busy, communicate exposed, and are idle."""
    names = ("device busy", "exposed communication", "device idle")
    if devices.empty:
        return [KeyFigure.unknown(name, "no device work recorded", "devices") for name in names]
    shares = (1 - devices["idle_share"], devices["communication_share"], devices["idle_share"])
    busy_ns = devices["window_ns"] - devices["idle_ns"]
    times = (busy_ns, devices["communication_ns"], devices["idle_ns"])
    is_least = (True, False, False)
    return [
        KeyFigure(
            name,
            f"{share.mean():.1%}",
            _of_window(devices, time, share, is_least=least),
            "devices",
            float(share.mean()),
        )
        for name, share, time, least in zip(names, shares, times, is_least, strict=True)
    ]


def _used(used: pd.DataFrame) -> KeyFigure:
    """Share of the multiprocessors of devices that have a block, on average."""
    name, active = "SM activity, estimate", used["sm_activity"].mean(skipna=False)
    if used.empty or pd.isna(active):
        unknown = "neither grids nor multiprocessors are known"
        why = unknown if len(used) else "no device work recorded"
        return KeyFigure.unknown(name, why, "devices")
    busy = used["gpu_utilization"].mean()
    about = f"a kernel runs {busy:.1%} of the time"
    if busy:
        about += f", on {active / busy:.1%} of the SMs"
    if len(used) > 1:
        about += f"; means of {human_count(len(used), 'device')}"
    return KeyFigure(name, f"{active:.1%}", about, "devices", float(active))


def _of_window(
    devices: pd.DataFrame, time_ns: pd.Series, share: pd.Series, *, is_least: bool
) -> str:
    """Share of what it is; of several devices, the worst one."""
    if len(devices) == 1:
        window = human_duration(int(devices["window_ns"].iloc[0]))
        return f"{human_duration(int(time_ns.iloc[0]))} of the window, {window}"
    at = int(share.to_numpy().argmin() if is_least else share.to_numpy().argmax())
    by = "rank" if "rank" in devices.columns else "device"
    extreme = "least" if is_least else "most"
    return (
        f"of the window, mean of {human_count(len(devices), 'device')}; {extreme} on {by} "
        f"{devices[by].iloc[at]}: {share.iloc[at]:.1%}"
    )


def _unexplained(summary: Summary | JobSummary) -> KeyFigure:
    """Share of the path without a known dependency."""
    found = summary.by_bound["share"].get(Bound.UNKNOWN_WAITS.label, 0.0)
    of = "the job's critical path" if isinstance(summary, JobSummary) else "the critical path"
    about = f"of {of}, {human_duration(summary.path.dur_ns)}"
    return KeyFigure("unknown_waits", f"{found:.1%}", about, "path", float(found))


def _saving(summary: Summary | JobSummary) -> KeyFigure:
    """What the best change saves, with its range; what a cause costs only if there is no change."""
    if summary.what_helps.empty:
        withheld = bool(summary.verdict.withheld)
        is_replayed = isinstance(summary, Summary) or summary.is_replayed
        why = (
            "the verdict is withheld"
            if withheld
            else "no change that was tried saves time"
            if is_replayed
            else "too large a job to be replayed here"
        )
        return KeyFigure.unknown("potential saving", why, "help")
    helpful, whole = summary.what_helps, max(summary.path.dur_ns, 1)
    made = helpful[helpful["kind"] != "without"]
    first = (made if len(made) else helpful).iloc[0]
    target, kind = name_label(str(first["target"])), str(first["kind"])
    how = (
        f"{kind} {target}"
        if kind == "without"
        else target
        if kind in target
        else f"{target} {kind}"
    )
    tried = summary.opportunities
    same = (tried["saves_ns"] == first["saves_ns"]) & (tried["low_ns"] == first["low_ns"])
    changes = set(tried.loc[same, "change"])
    findings = [one for one in summary.verdict.findings if one.repaired_by in changes]
    saves_ns, low_ns, high_ns = (
        (findings[0].potential_saving_ns, findings[0].saving_low_ns, findings[0].saving_high_ns)
        if findings
        else (int(first["saves_ns"]), max(int(first["low_ns"]), 0), int(first["high_ns"]))
    )
    about = f"of the window, {low_ns / whole:.1%} to {high_ns / whole:.1%}: {how}"
    share = saves_ns / whole
    return KeyFigure("potential saving", f"{share:.1%}", about, "help", share)
