"""Sections, panels and steps as HTML."""

from __future__ import annotations

from html import escape, unescape

from htagraph.job.job import JOB_QUESTIONS
from htagraph.model.frames import BREAKDOWN, JOB_SEGMENTS
from htagraph.model.kinds import bound_in_words, in_words
from htagraph.model.units import human_count, human_duration
from htagraph.questions import QUESTIONS
from htagraph.reports.page.commands import Commands, command_html
from htagraph.reports.page.html_tables import html_table
from htagraph.reports.page.legend import TOLD, mark
from htagraph.reports.page.panels import Panel, Section
from htagraph.reports.page.step_views import StepChoice, StepView
from htagraph.reports.page.texts import Texts

__all__ = ["has_own_legend", "section_html"]

_ON_PAPER = ("path", "help", "late", "pipeline", "quality")
"""Sections with figures and tables on paper; of others, only the titles, which state the facts."""
_MAX_NAMED = 200
"""Steps outside the page that the list names: chosen."""


def section_html(part: Section, origin_ns: int, texts: Texts, commands: Commands) -> str:
    """A section with its panels.

    Parameters
    ----------
    origin_ns : int, unit=ns
        Time from which tables count.
    texts : Texts
        Where long names are stored.
    commands : Commands
        What shows more.
    """
    panels = "\n".join(_panel(panel, origin_ns, texts, commands) for panel in part.panels)
    steps = "" if part.steps is None else _choice(part.steps, texts, commands)
    body = (
        f'<p class="intro">{escape(part.intro)}</p>{steps}<div class="panels">{panels}</div>'
        if part.panels
        else f'<p class="absent">{escape(part.absent)}</p>'
    )
    key = ' class="key"' if part.name in _ON_PAPER else ""
    return f'<section id="{part.name}"{key}><h2>{escape(part.title)}</h2>{body}</section>'


def has_own_legend(panel: Panel) -> bool:
    """Whether a figure has colors that the legend of the page lacks."""
    if panel.figure is None:
        return False
    layout, traces = panel.figure.layout, panel.figure.data
    named = {
        in_words(trace["name"])
        for trace in traces
        if trace.get("showlegend", True) and trace.get("name")
    }
    is_shown = layout.get("showlegend", len(traces) > 1)
    return bool(is_shown) and not named <= TOLD


def _panel(panel: Panel, origin_ns: int, texts: Texts, commands: Commands) -> str:
    """A panel: its title, the figure, a note on what is left out, and the table behind it."""
    title, drawn, note = escape(panel.heading), "", ""
    if panel.figure is not None:
        # Figures escape their titles themselves: plotly takes them as markup, too.
        title, note = panel.figure.title, panel.figure.note
        told = f'role="figure" aria-label="{escape(unescape(title))}"'
        height = f"height:{panel.figure.layout['height']}px"
        drawn = f'<div class="figure" data-figure="{panel.name}" {told} style="{height}"></div>'
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    wide = " wide" if panel.is_wide else ""
    whole = " whole-window" if panel.is_whole_window else ""
    body = f"<h3>{title}</h3>{drawn}{said}{_table(panel, origin_ns, texts, commands)}"
    return f'<article class="panel{wide}{whole}" id="{panel.name}">{body}</article>'


def _table(panel: Panel, origin_ns: int, texts: Texts, commands: Commands) -> str:
    """The table behind a figure, to be opened."""
    shown = html_table(
        panel.frame,
        schema=panel.schema,
        origin_ns=origin_ns,
        segments=panel.segments,
        n_rows=panel.n_rows,
        whole=_command(panel, commands),
        texts=texts,
    )
    is_open = " open" if panel.figure is None else ""
    rows = human_count(panel.n_rows or len(panel.frame), "row")
    return f"<details{is_open}><summary>Table, {rows}</summary>{shown}</details>"


def _command(panel: Panel, commands: Commands) -> str:
    """Command that prints all rows: by default, the question of the schema; empty for none."""
    name = panel.schema.name.lower() if panel.schema else ""
    question = name.removeprefix("matched_")
    is_asked = question in QUESTIONS or question in JOB_QUESTIONS
    verb = panel.verb or (f"ask {question}" if is_asked else "")
    return commands.of(verb) if verb else ""


def _choice(steps: StepChoice, texts: Texts, commands: Commands) -> str:
    """The window, the steps to choose from, and the path in each."""
    if not steps.views:
        return f'<p class="choice">Window: <b>{escape(steps.window)}</b></p>'
    options = "".join(
        f'<option value="{number}" data-start="{view.start_ns - steps.start_ns}" '
        f'data-end="{view.end_ns - steps.start_ns}" '
        f'data-command="{escape(commands.on_step(view.name))}">{escape(view.name)}, '
        f"{escape(view.summary)}</option>"
        for number, view in enumerate(steps.views)
    )
    left, some = steps.left_out, ""
    if left:
        n_all = len(left) + len(steps.views)
        named = "".join(f"<option disabled>{escape(name)}</option>" for name in left[:_MAX_NAMED])
        more = f"<option disabled>… {len(left) - _MAX_NAMED:,} more</option>"
        named += more if len(left) > _MAX_NAMED else ""
        options += f'<optgroup label="Not in this page">{named}</optgroup>'
        some = f"Listed: the {len(steps.views)} longest of {n_all:,} steps, and the usual one. "
    views = "\n".join(
        _step(number, view, steps.start_ns, texts) for number, view in enumerate(steps.views)
    )
    report = command_html(commands.on_step(steps.views[0].name))
    return (
        '<p class="choice"><label for="step">Show in this section</label> <select id="step">'
        f'<option value="">{escape(steps.window)}</option>{options}</select> '
        f'<span class="note">{some}The headline, the findings and all other sections stay on '
        f"{escape(steps.window)}. A report on a step: {report}</span></p>\n{views}"
    )


def _step(number: int, view: StepView, origin_ns: int, texts: Texts) -> str:
    """The path in a step: a bar, its bounds, and its longest segments."""
    columns = view.bounds[["bound", "dur_ns", "share"]]
    parts = "".join(
        f'<i{mark(bound)} style="width:{100 * share:.3f}%" '
        f'title="{escape(bound_in_words(bound))}: {human_duration(dur)} ({share:.1%})"></i>'
        for bound, dur, share in columns.itertuples(index=False)
    )
    bounds = html_table(view.bounds, schema=BREAKDOWN)
    longest = html_table(
        view.longest, schema=JOB_SEGMENTS, origin_ns=origin_ns, segments=view.segments, texts=texts
    )
    return (
        f'<article class="panel wide step" data-step="{number}" hidden>'
        f"<h3>{escape(view.name)}: {escape(view.summary)}</h3>"
        f'<div class="meter bar" role="img" aria-label="{escape(view.name)}, '
        f'{escape(view.summary)}">{parts}</div><div class="columns">{bounds}'
        f"<div><h4>The longest segments in it</h4>{longest}</div></div></article>"
    )
