"""The first screen of a page: headline, cards, three figures, and what to type next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from htagraph.findings.verdict import Card, Paragraph, Verdict, percent
from htagraph.model.units import human_count, human_duration
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.markdown import next_question, share_of_all
from htagraph.reports.page.parts import Commands, command_html, mark, shell_path
from htagraph.reports.summary import Summary

_COST = re.compile(r"(?:&lt;)?\d{1,3}%")


class Tile(NamedTuple):
    """One number of the run, with its name and what it is of; `section` has the answer."""

    name: str
    text: str
    about: str
    section: str
    value: float  # The exact number: nanoseconds or a share


def tiles(verdict: Verdict, devices: pd.DataFrame) -> Iterator[Tile]:
    """Yield step time, or the length of the run; and with device work two of devices."""
    whole_ns, step_ns = verdict.dur_ns, verdict.step_ns
    if verdict.n_steps:
        of = f"{human_count(verdict.n_steps, 'step')} in {human_duration(whole_ns)}"
        yield Tile("step time", human_duration(step_ns), of, "steps", step_ns)
    else:
        yield Tile("length", human_duration(whole_ns), f"of this {verdict.thing}", "path", whole_ns)
    if devices.empty:
        return
    busy, exposed = 1 - devices["idle_share"], devices["communication_share"]
    idle, communicating = (share_of_all(devices, part) for part in ("idle", "communication"))
    yield _of_devices("GPU busy", 1 - idle, "least", devices, busy, section="devices")
    section = "communication" if communicating else "devices"
    yield _of_devices(
        "exposed communication", communicating, "most", devices, exposed, section=section
    )


def _of_devices(
    name: str,
    mean: float,
    extreme: str,
    devices: pd.DataFrame,
    share: pd.Series[float],
    *,
    section: str,
) -> Tile:
    """The mean of all devices; of several, the extreme one is named."""
    window_ns = int(devices["window_ns"].iloc[0])
    about = f"{human_duration(mean * window_ns)} of {human_duration(window_ns)}" if mean else "none"
    if len(devices) > 1:
        at = int(share.to_numpy().argmin() if extreme == "least" else share.to_numpy().argmax())
        by = "rank" if "rank" in devices.columns else "device"
        where = f"{by} {devices[by].iloc[at]}: {percent(share.iloc[at], 1)}"
        about = f"mean of {human_count(len(devices), 'device')}; {extreme} on {where}"
    return Tile(name, percent(mean, 1), about, section, mean)


def first_screen(
    summary: Summary | JobSummary,
    devices: pd.DataFrame,
    commands: Commands,
    perfetto_file: Path | None,
) -> str:
    """Headline, caveats, cards and smaller costs; next to them figures and commands."""
    verdict = summary.verdict
    caveats = (*summary.window_caveats, *verdict.top_damage)
    notes = [one.text for one in verdict.paragraphs if one.role == "note"] + summary.notes
    cards = "\n".join(_cards(verdict))
    said = [
        f'<h2 class="lead">{escape(verdict.headline)}</h2>',
        f'<p class="facts">{escape(summary.facts)}</p>',
        *(f'<p class="caveat">{escape(text)}</p>' for text in caveats),
    ]
    if cards:
        said.append(f'<ol class="cards">{cards}</ol>')
    if any(finding.hidden for finding in verdict.top_findings):
        key = "Hatched: on the critical path, but other work takes nearly as long meanwhile."
        said.append(f'<p class="note key"><i class="hidden"></i>{key}</p>')
    said += [f'<p class="also">{escape(verdict.also)}</p>'] * bool(verdict.also)
    said += [f'<p class="note">{escape(text)}</p>' for text in notes]
    items = "".join(
        f'<li><a href="#{one.section}" data-value="{one.value!r}"><span>{escape(one.name)}</span>'
        f"<strong>{escape(one.text)}</strong><small>{escape(one.about)}</small></a></li>"
        for one in tiles(verdict, devices)
    )
    figures = f'<ul class="tiles" aria-label="Figures">{items}</ul>'
    aside = figures + _next(summary, commands, perfetto_file)
    return f'<div class="first"><div>{"".join(said)}</div><aside>{aside}</aside></div>'


def _cards(verdict: Verdict) -> Iterator[str]:
    """Yield the cards, in the words of the terminal."""
    lines: list[list[Paragraph]] = []
    for one in verdict.paragraphs:
        if one.role == "card":
            lines.append([])
        if one.role in ("card", "evidence", "fix"):
            lines[-1].append(one)
    for card, (title, *rest) in zip(verdict.cards, lines, strict=True):
        why = {one.advice: one.fix.why for one in card.findings}
        said = "".join(_line(one, why.get(one.text, "")) for one in rest)
        yield _card(card, title, said)


def _card(card: Card, title: Paragraph, said: str) -> str:
    """A card: what it costs as a number and as a bar, and what is known of it."""
    whole_ns, path_ns = card.findings[0].window_ns, sum(one.path_ns for one in card.findings)
    is_hidden = card.cost_ns is None or any(one.hidden for one in card.findings)
    cost = 0.0 if card.cost_ns is None else card.share
    hidden = max(path_ns / max(whole_ns, 1) - cost, 0.0) if is_hidden else 0.0
    number = _COST.sub(lambda found: f"<strong>{found[0]}</strong>", escape(card.said))
    causes = escape(", ".join(one.label for one in card.findings))
    return (
        f'<li class="card" data-causes="{causes}" data-value="{card.cost_ns}"{mark(title.bound)}>'
        f'<p class="cost">{number}</p><div><h3>{escape(title.text)}</h3>'
        f'<div class="meter" role="img" aria-label="{escape(card.said)}">'
        f'<i class="part" style="width:{100 * cost:.2f}%"></i>'
        f'<i class="hidden" style="width:{100 * hidden:.2f}%"></i></div>{said}</div></li>'
    )


def _line(one: Paragraph, why: str) -> str:
    """What contributes to a finding; or what to do about it, and why."""
    if one.role == "evidence":
        return f'<p class="evidence">{escape(one.text)}</p>'
    reason = f" <small>{escape(why)}</small>" if why else ""
    return f'<p class="fix"><b>→ {escape(one.text)}</b>{reason}</p>'


def _next(summary: Summary | JobSummary, commands: Commands, perfetto_file: Path | None) -> str:
    """What to ask next, as on the terminal; and the command that opens the trace."""
    verb, more = next_question(summary)
    asked = f"{commands.of(verb)} {more}".rstrip()
    said = [f"<p>Next: {command_html(asked)}</p>"]
    if perfetto_file is not None:
        view = command_html(f"htagraph view {shell_path(perfetto_file)}", file=perfetto_file.name)
        said.append(f"<p>Every event, in Perfetto: {view}</p>")
    return "".join(said)
