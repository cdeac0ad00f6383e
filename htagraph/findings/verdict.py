"""A verdict: what limits a run, in one headline and at most three cards, each with one cost."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from htagraph.model.kinds import Cause
from htagraph.model.labels import printable
from htagraph.model.units import human_count, human_duration
from htagraph.replay.change_options import options_of
from htagraph.replay.changes import Change
from htagraph.writers.notebook_cell import escaped

_N_CARDS = 3
"""Cards that a verdict prints; of two causes side by side, and one more. A limit of the screen:
`Verdict.findings` has all. Pinned by test_verdict.
"""

LEAST_CARD, LEAST_ALSO = 0.05, 0.01
"""Shares of the run that a cause costs from which on it has a card, or is named. Chosen: of 416
cards of 151 real runs, 110 cost less than 5%. Pinned by test_verdict.
"""

_LEADS = 0.5
"""Part of the largest cost from which on a late rank, slow stage or imbalance is the headline: all
else on the path waits for it, too. Chosen: changes no first cause of 151 real runs. Pinned by
test_ranking.
"""

_ALONE = 0.5
"""Part of the first cost up to which the second one is small: then only the first helps. Chosen.
Pinned by test_verdict.
"""

_HIDDEN = 0.85
"""Part of the path time of a cause below which its cost says that it is partly hidden. Chosen: the
other readings of a trace move nine of ten costs by less. Pinned by test_verdict.
"""

_ADDS = 0.9
"""Part of the cost of a cause from which on what its fix saves adds nothing. Chosen. Pinned by
test_verdict.
"""

_BOTH = 0.9
"""Share that two causes cost together from which on a number says nothing: chosen. Pinned by
`test_verdict.py::test_two_chains_of_all_of_the_run_have_no_number`."""

_SECOND = 0.2
"""Part of the largest contributor from which on a card names the second one. Chosen: test_verdict.
"""

_N_DAMAGED = 3
"""Sentences on damage that a verdict prints. A limit of the screen: `Verdict.damage` has all.
Pinned by test_verdict.
"""

_N_RANKS = 3
"""Ranks that evidence names; the rest are counted. A limit of the screen: `Finding.ranks` has all.
Pinned by test_verdict.
"""

_WIDTH = 88
"""Columns of a verdict in Python. A limit of the screen, not of the answer. Pinned by test_verdict.
"""

_STYLES = {
    "headline": "font-weight:bold",
    "damage": "color:#a60",
    "card": "font-weight:bold",
    "fix": "font-style:italic",
    "note": "opacity:.7",
}
"""Styles of paragraphs in a notebook."""

LATE = (Cause.LATE_RANK, Cause.PIPELINE, Cause.EXPERT_IMBALANCE)
"""Causes that are of one rank, stage or group of experts: the others wait for it."""

_BUSY = {
    Cause.COMPUTE: ("The GPU is busy: kernels", "kernels"),
    Cause.CPU_OPERATORS: ("The CPU is busy: operators", "operators"),
}
"""Causes that are the work itself: who does it, and what."""

Role = Literal["headline", "damage", "card", "evidence", "fix", "also", "note"]

State = Literal[
    "withheld", "hidden chain", "one rank", "side by side", "work bound", "nothing", "first cause"
]
"""What kind of answer it is; each has a headline of its own."""


class Paragraph(NamedTuple):
    """One paragraph of a verdict, with the indent of its lines."""

    role: Role
    text: str
    indent: int = 0
    # cost, share, bound: of a card, what is at the right, its cost as a share of the run, and what
    # most of it is spent on
    cost: str = ""
    share: float = 0.0
    bound: str = ""
    opens: bool = False  # An empty line precedes it


def cause_label(cause: str, rank: int) -> str:
    """A cause, with its rank if it is a late one."""
    return f"{cause} {rank}" if cause == Cause.LATE_RANK else cause


def percent(time_ns: float, whole_ns: float) -> str:
    """A share in percent; never 0% for time that is there."""
    said = f"{time_ns / max(whole_ns, 1):.0%}"
    return "<1%" if time_ns > 0 and said == "0%" else said


@dataclass(frozen=True)
class Evidence:
    """One contributor to a finding."""

    name: str  # What ran, or the call that waited
    op: str  # Innermost operator or annotation around most of it
    frame: str  # Line or frame of Python code, empty if not recorded
    event: int  # Event of its longest part; -1 for none
    label: str  # The contributor in words
    dur_ns: int
    bound: str
    n_segments: int

    def __str__(self) -> str:
        return f"{self.label} {human_duration(self.dur_ns)}"


class Fix(NamedTuple):
    """What to do about a cause, and what exactly that would save if it can be replayed."""

    do: str  # What to do: a sentence that begins with a verb
    why: str = ""  # What in the run speaks for it; may be empty
    change: Change | None = None  # The change that this is; None if it cannot be replayed
    saves_ns: int | None = None  # What the change saves; None if that was not replayed
    # low_ns, high_ns: the same by other readings of what the trace leaves open
    low_ns: int = 0
    high_ns: int = 0

    @property
    def options(self) -> str:
        """The change as options of ``htagraph what-if``; empty for none."""
        return "" if self.change is None else options_of(self.change)


@dataclass(frozen=True, repr=False)
class Finding:
    """A cause of a critical path, with what it costs."""

    # cause, title: label of the `Cause` for programs, and its title for people
    cause: str
    title: str
    # What the run would be shorter by without it, on all threads, streams and ranks; None if the
    # run was not replayed
    cost_ns: int | None
    # Time of the critical path attributed to it: all findings and what is `Verdict.apart` add up to
    # the window
    path_ns: int
    window_ns: int
    n_segments: int
    # longest_ns, longest_start_ns: length and start of the longest segment
    longest_ns: int
    longest_start_ns: int
    # Number of steps with attributed time; `first_step` and `last_step` are empty for none
    n_steps: int
    first_step: str
    last_step: str
    # Bounds of the attributed time, with their time in ns; largest first
    parts: tuple[tuple[str, int], ...]
    evidence: tuple[Evidence, ...]  # Largest contributors
    fix: Fix
    # Of a job: ranks of the attributed time, with their part in ns; largest first
    ranks: tuple[tuple[int, int], ...] = ()
    # Further facts: how often a late rank was last, how much longer a rank's kernels take, how much
    # of the communication is hidden
    detail: str = ""
    if_gone: str = ""  # The condition of the run without it, if that is not "without it"
    # What the recording lacks to say what it is made of, and the setting; empty for nothing
    to_record: str = ""

    def __repr__(self) -> str:
        return f"Finding({self.title}, {self.said})"

    @property
    def label(self) -> str:
        """The cause, with its rank if it is a late one."""
        return cause_label(self.cause, self.ranks[0][0] if self.ranks else -1)

    @property
    def weight_ns(self) -> int:
        """Its cost, or what it has of the path, which its cost cannot exceed."""
        return self.path_ns if self.cost_ns is None else self.cost_ns

    @property
    def is_plural(self) -> bool:
        """Whether its title is in the plural, as that of copies, waits or kernels."""
        return self.title.endswith("s")

    @property
    def share(self) -> float:
        """Its cost as a share of the run."""
        return self.weight_ns / max(self.window_ns, 1)

    @property
    def said(self) -> str:
        """What it costs, in words."""
        if self.cost_ns is None:
            return f"{percent(self.path_ns, self.window_ns)} of the path"
        return f"costs {percent(self.cost_ns, self.window_ns)}"

    @property
    def hidden(self) -> str:
        """How much of the path it has, if other work takes nearly as long at the same time."""
        if self.cost_ns is None or self.cost_ns >= _HIDDEN * self.path_ns or self.cause in LATE:
            return ""
        return f"on {percent(self.path_ns, self.window_ns)} of the critical path, partly hidden"

    @property
    def contributors(self) -> str:
        """The largest contributor, and the second if it is not small."""
        return ", ".join(
            str(one)
            for one in self.evidence[:2]
            if one.dur_ns >= _SECOND * self.evidence[0].dur_ns and one.dur_ns
        )

    @property
    def advice(self) -> str:
        """What to do, and what that saves if it adds a fact."""
        saves_ns = self.fix.saves_ns
        if saves_ns is None or not LEAST_ALSO * self.window_ns <= saves_ns < _ADDS * self.weight_ns:
            return self.fix.do
        change = self.fix.change
        about = "up to" if change is not None and change.is_most else "about"
        return f"{self.fix.do.rstrip('.')} (saves {about} {percent(saves_ns, self.window_ns)})."

    @property
    def where(self) -> str:
        """Ranks of the attributed time; empty for one trace, and for a late rank."""
        if self.cause == Cause.LATE_RANK or not self.path_ns:
            return ""
        if len(self.ranks) == 1:
            return f"all on rank {self.ranks[0][0]}"
        parts = [
            f"{percent(part_ns, self.path_ns)} on rank {rank}"
            for rank, part_ns in self.ranks[:_N_RANKS]
        ]
        if len(self.ranks) > _N_RANKS:
            parts.append(f"the rest on {human_count(len(self.ranks) - _N_RANKS, 'other')}")
        return ", ".join(parts)

    @property
    def when(self) -> str:
        """Steps of the attributed time, empty if the trace has none."""
        if self.n_steps < 2:
            return f"in {self.first_step}" if self.n_steps else ""
        return f"in {self.n_steps:,} steps, {self.first_step} to {self.last_step}"

    @property
    def evidence_sentence(self) -> str:
        """All that is known of where its time went, in one line."""
        named = ", ".join(map(str, self.evidence))
        return "; ".join(filter(None, (named, self.detail, self.hidden, self.when, self.where)))


class FunctionCost(NamedTuple):
    """What the run would be shorter by without a function and all that it calls."""

    frame: str  # Name of its frames
    path_ns: int  # Time of the critical path in it
    cost_ns: int
    said: str  # What it costs, in words; empty if a card says the same


class Card(NamedTuple):
    """What a verdict shows as one: a finding, or two that run side by side, with one cost."""

    findings: tuple[Finding, ...]
    cost_ns: int | None

    @property
    def title(self) -> str:
        """The cause, or both."""
        first, *others = (one.title for one in self.findings)
        if not others:
            return first
        return f"{first} and {within_sentence(others[0])}, in parallel"

    @property
    def said(self) -> str:
        """What it costs, in words."""
        if self.cost_ns is None or len(self.findings) == 1:
            return self.findings[0].said
        return f"together cost {percent(self.cost_ns, self.findings[0].window_ns)}"

    @property
    def share(self) -> float:
        """Its cost as a share of the run."""
        first = self.findings[0]
        return first.share if self.cost_ns is None else self.cost_ns / max(first.window_ns, 1)


class Pair(NamedTuple):
    """Two causes that run side by side: neither helps alone."""

    findings: tuple[Finding, Finding]  # The one that costs more by itself is first
    together_ns: int  # What the run would be shorter by without both


@dataclass(frozen=True, repr=False)
class Verdict:
    """What limits a run, or why that is unknown.

    Parameters
    ----------
    findings : tuple of Finding
        Largest cost first; a late rank, slow stage or expert imbalance that costs at least half of
        the largest is first. Empty if the verdict is withheld.
    withheld : str
        Why there is no verdict; empty if there is one.
    window : str
        Name of the window.
    dur_ns : int, unit=ns
        Its length.
    n_steps : int
        Steps that tile it; 0 for none.
    is_job : bool
        It is a window of several ranks.
    apart : tuple of (str, int)
        Time that nothing in the run can be blamed for, in ns by cause. With `path_ns` of all
        findings it adds up to the window.
    pair : Pair, optional
        Causes that run side by side, if no cause costs a third of the run and two together do.
    is_hidden : bool
        Without the largest cause, the run is bound by unknown waits.
    damage : tuple of str
        What the recording lacks or has wrong, and what that does to the answer: sentences, the
        worst first.
    replays : str
        If most device time is in captured graphs: whether launches or the graphs are the cost.
    roof : str
        How near the operators on the device are to its roofs, if most of them are known.
    rests_on : str
        The part of the window that was replayed, if not all of it.
    functions : tuple of FunctionCost
        The largest functions of the program, if Python stacks were recorded.
    uneven : str
        The call that takes longer than the others of its step, in every step; empty for none.

    Examples
    --------
    >>> import htagraph as hg
    >>> hg.load(hg.demo_trace("dataloader")).compile().verdict().headline
    'Data loading costs 72% of this run: 7.92 ms a step would be 2.22 ms without it.'
    """

    findings: tuple[Finding, ...]
    withheld: str = ""
    window: str = "the window"
    dur_ns: int = 0
    n_steps: int = 0
    is_job: bool = False
    apart: tuple[tuple[str, int], ...] = ()
    pair: Pair | None = None
    is_hidden: bool = False
    damage: tuple[str, ...] = ()
    replays: str = ""
    roof: str = ""
    rests_on: str = ""
    functions: tuple[FunctionCost, ...] = ()
    uneven: str = ""

    @property
    def to_record(self) -> str:
        """The setting of the profiler that would name what the cards cannot; said once."""
        return next((one.to_record for one in self.top_findings if one.to_record), "")

    @property
    def by_function(self) -> str:
        """What functions cost that no card names, and which call is uneven; empty for none."""
        told = "; ".join(one.said for one in self.functions if one.said)
        told = f"With all that they call: {told}." if told and not self.is_hidden else ""
        return " ".join(filter(None, (told, self.uneven)))

    @property
    def by_cause(self) -> dict[str, str]:
        """Card of each cause, or late rank, in lines: title and cost, fix, evidence."""
        return {
            one.label: "\n".join(
                (
                    f"{one.title}, {one.said}",
                    f"cost: {human_duration(one.weight_ns)}",
                    f"fix: {one.advice}",
                    f"evidence: {one.evidence_sentence}",
                )
            )
            for one in self.findings
        }

    @property
    def state(self) -> State:
        """What kind of answer it is."""
        if self.withheld:
            return "withheld"
        if self.is_hidden:
            return "hidden chain"
        first = self.findings[0] if self.findings else None
        if first and first.cause in LATE and first.share >= LEAST_CARD:
            return "one rank"
        if self.pair:
            return "side by side"
        if first is None or first.share < LEAST_CARD:
            return "nothing"
        return "work bound" if self._is_work_bound else "first cause"

    @property
    def _is_work_bound(self) -> bool:
        """Whether the first cause is the work itself, and no other cost is near."""
        first, *others = self.findings
        if first.cause not in _BUSY or first.cost_ns is None:
            return False
        return max((one.weight_ns for one in others), default=0) <= _ALONE * first.weight_ns

    @property
    def items(self) -> tuple[Card, ...]:
        """All findings in the order of their costs; two side by side are one, and first."""
        pair = self.pair.findings if self.pair else ()
        labels = {one.label for one in pair}
        singles = (Card((one,), one.cost_ns) for one in self.findings if one.label not in labels)
        both = (Card(pair, self.pair.together_ns),) if self.pair else ()
        return (*both, *singles)

    @property
    def cards(self) -> tuple[Card, ...]:
        """What is shown large: at most three, of at least 5% each."""
        if self.withheld or self.is_hidden:
            return ()
        most = _N_CARDS - bool(self.pair)
        return tuple(one for one in self.items if one.share >= LEAST_CARD)[:most]

    @property
    def top_findings(self) -> tuple[Finding, ...]:
        """The findings on cards."""
        return tuple(finding for card in self.cards for finding in card.findings)

    @property
    def also(self) -> str:
        """Smaller costs, and what of the path nothing can be blamed for; empty for none."""
        if self.withheld or self.is_hidden:
            return ""
        shown = {one.label for one in self.top_findings}
        rest = [one for one in self.findings if one.label not in shown and one.share >= LEAST_ALSO]
        said = [
            f"{within_sentence(one.title)} {percent(one.weight_ns, self.dur_ns)}" for one in rest
        ]
        said += [
            f"{cause} {percent(time_ns, self.dur_ns)} of the path"
            for cause, time_ns in self.apart
            if time_ns >= LEAST_ALSO * self.dur_ns
        ]
        return f"Also: {', '.join(said)}." if said else ""

    @property
    def top_damage(self) -> tuple[str, ...]:
        """The first sentences on damage, and how many there are besides."""
        more = len(self.damage) - _N_DAMAGED
        if more <= 0:
            return self.damage
        ask = f"And {human_count(more, 'more sentence')}: htagraph ask damage."
        return (*self.damage[:_N_DAMAGED], ask)

    @property
    def thing(self) -> str:
        """What it is about: a job, a step, or a run."""
        return "job" if self.is_job else "step" if self.n_steps == 1 else "run"

    @property
    def step_ns(self) -> float:
        """Step time: the mean length of its steps; 0 if it is not made of steps."""
        return self.dur_ns / self.n_steps if self.n_steps else 0.0

    def lasts(self, time_ns: int) -> str:
        """A time of the window, per step if steps tile it."""
        return human_duration(time_ns / max(self.n_steps, 1))

    def _shorter(self, finding: Finding) -> str:
        """How long the run is, and how long it would be without a cause."""
        a_step = " a step" if self.n_steps > 1 else ""
        after = self.lasts(self.dur_ns - finding.weight_ns)
        if_gone = finding.if_gone or f"without {'them' if finding.is_plural else 'it'}"
        return f"{self.lasts(self.dur_ns)}{a_step} would be {after} {if_gone}"

    @property
    def headline(self) -> str:
        """What limits the run, in one or two sentences."""
        match self.state:
            case "withheld":
                return f"Not enough recorded to say what limits this {self.thing}: {self.withheld}"
            case "hidden chain":
                return self._hidden_chain
            case "nothing":
                return f"Nothing here costs more than {LEAST_CARD:.0%}."
            case "side by side":
                return self._side_by_side
            case "work bound":
                return self._busy
        return self._first_cause

    @property
    def _first_cause(self) -> str:
        """The headline if one cause, rank, stage or group of experts comes first."""
        first, this = self.findings[0], f"this {self.thing}"
        if first.cost_ns is None:
            share = percent(first.path_ns, self.dur_ns)
            has = ":" if first.cause in LATE else f" {_is(first)}"
            return (
                f"{first.title}{has} {share} of the critical path of {this}; it was not replayed, "
                "so what that costs is unknown."
            )
        cost, shorter = percent(first.cost_ns, self.dur_ns), self._shorter(first)
        if self.state == "one rank":
            return f"{first.title}: it costs {cost}. {shorter}."
        verb = "cost" if first.is_plural else "costs"
        return f"{first.title} {verb} {cost} of {this}: {shorter}."

    @property
    def _hidden_chain(self) -> str:
        """The headline if the largest cause hides a chain of unknown waits."""
        largest = max(self.findings, key=lambda one: one.path_ns)
        return (
            f"Not enough recorded to say what limits this {self.thing}: "
            f"{within_sentence(largest.title)} {_is(largest)} "
            f"{percent(largest.path_ns, self.dur_ns)} of the critical path, but work that the "
            "trace does not explain takes as long at the same time."
        )

    @property
    def _busy(self) -> str:
        """The headline if the work itself is the cost."""
        first, *others = self.findings
        cost = percent(first.weight_ns, self.dur_ns)
        who, what = _BUSY[Cause(first.cause)]
        second = max(others, key=lambda one: one.weight_ns, default=None)
        nothing = ""
        if second is not None and second.share >= LEAST_ALSO:
            most = percent(second.weight_ns, self.dur_ns)
            nothing = f", and nothing else costs more than {most} ({within_sentence(second.title)})"
        only = self.roof or f"Only fewer or faster {what} help."
        return f"{who} alone cost {cost} of this {self.thing}{nothing}. {only}"

    @property
    def _side_by_side(self) -> str:
        """The headline if two chains take about as long."""
        assert self.pair is not None
        first, second = self.pair.findings
        said = (
            f"{first.title} and {within_sentence(second.title)} run in parallel and take about as "
            "long: "
        )
        one = percent(first.weight_ns, self.dur_ns)
        both = f", without both {percent(self.pair.together_ns, self.dur_ns)}."
        if self.pair.together_ns >= _BOTH * self.dur_ns:
            both = ". Both have to shrink."
        return f"{said}without either one this {self.thing} is at most {one} shorter{both}"

    @property
    def paragraphs(self) -> tuple[Paragraph, ...]:
        """The verdict in words, for terminal, notebook and page."""
        return tuple(self._paragraphs())

    def _paragraphs(self) -> Iterator[Paragraph]:
        yield from (Paragraph("damage", text) for text in self.top_damage)
        yield Paragraph("headline", self.headline, opens=bool(self.damage))
        if self.is_hidden:
            yield Paragraph("note", self._hidden_path)
        for number, card in enumerate(self.cards, start=1):
            bound = card.findings[0].parts[0][0] if card.findings[0].parts else ""
            title, opens = f"{number}. {card.title}", number == 1
            yield Paragraph("card", title, 0, card.said, card.share, bound, opens)
            for finding in card.findings:
                alone = ""
                if len(card.findings) > 1:
                    alone = f"{finding.title}, alone {percent(finding.weight_ns, self.dur_ns)}: "
                late = finding.detail if finding.cause in LATE else ""
                found = "; ".join(filter(None, (finding.contributors, late, finding.hidden)))
                if not finding.path_ns:
                    found = "all of it hidden behind the other"
                if alone or found:
                    yield Paragraph("evidence", f"{alone}{found}", 3)
                if finding.fix.do:
                    yield Paragraph("fix", finding.advice, 3)
        for number, said in enumerate(filter(None, (self.by_function, self.also))):
            yield Paragraph("also", said, opens=not self.cards and not number)
        first = f"{self.replays.partition('. ')[0].rstrip('.')}." if self.replays else ""
        if said := " ".join(filter(None, (self.to_record, first))):
            yield Paragraph("note", said)

    @property
    def _hidden_path(self) -> str:
        """What the critical path runs through, if that is hidden, and how little it costs."""
        largest = max(self.findings, key=lambda one: one.path_ns)
        cost = human_duration(largest.weight_ns)
        return (
            f"On the critical path: {largest.contributors}. Removing all of it would shorten this "
            f"{self.thing} by {cost} only. Record what the device work waits for: htagraph info "
            "says how."
        )

    def lines(self, width: int = _WIDTH) -> list[str]:
        """The verdict as lines of at most so many columns; nothing is cut."""
        return lines_of(self.paragraphs, width)

    def document(self) -> dict[str, Any]:
        """The verdict as plain values, for programs.

        Returns
        -------
        dict
            ``headline``, ``state``, ``window_ns``, ``n_steps``, ``items`` (all findings, the
            largest cost first: ``causes``, ``title``, ``cost_ns`` or null, ``alone_ns`` {cause:
            ns}, ``path_ns``, ``is_card``, ``ranks``, ``detail``, ``longest_start_ns``, ``fix``
            {``do``, ``why``, ``change``, ``saves_ns``, ``low_ns``, ``high_ns``, ``options``} of
            each cause, ``evidence``), ``apart`` {cause: ns}, ``also``, ``damage``, ``notes``.
            ``path_ns`` of all items and ``apart`` add up to the window.
        """
        notes = self.by_function, self.replays, self.to_record, self.rests_on
        return {
            "headline": self.headline,
            "state": self.state,
            "window_ns": self.dur_ns,
            "n_steps": self.n_steps,
            "items": [_document(card, is_card=card in self.cards) for card in self.items],
            "apart": dict(self.apart),
            "also": self.also,
            "damage": list(self.damage),
            "notes": [text for text in notes if text],
        }

    def __repr__(self) -> str:
        """The verdict as the terminal shows it."""
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return "".join(
            f'<div style="margin-left:{one.indent}ch;{_STYLES.get(one.role, "")}">'
            f"{escaped(f'{one.text}: {one.cost}' if one.cost else one.text)}</div>"
            for one in self.paragraphs
        )


def lines_of(paragraphs: Iterable[Paragraph], width: int = _WIDTH) -> list[str]:
    """Paragraphs as lines of at most so many columns; nothing is cut."""
    out: list[str] = []
    for one in paragraphs:
        out += [""] if one.opens else []
        out += wrapped(one, width)
    return out


def wrapped(paragraph: Paragraph, width: int) -> list[str]:
    """A paragraph as lines of at most so many columns; the cost of a card is at the right."""
    mark = "-> " if paragraph.role == "fix" else ""
    room = width - len(paragraph.cost) - 2 if paragraph.cost else width
    lines = textwrap.wrap(
        mark + printable(paragraph.text),
        room,
        initial_indent=" " * paragraph.indent,
        subsequent_indent=" " * (paragraph.indent + len(mark)),
        break_long_words=False,
        break_on_hyphens=False,
    )
    if paragraph.cost and lines:
        lines[0] = f"{lines[0]:<{width - len(paragraph.cost)}}{paragraph.cost}"
    return lines


def _is(finding: Finding) -> str:
    """The verb of a sentence on a finding."""
    return "are" if finding.is_plural else "is"


def within_sentence(title: str) -> str:
    """A title within a sentence: names keep their capital."""
    return title if title.startswith(("GPU", "CPU", "Python")) else title[:1].lower() + title[1:]


def _document(card: Card, *, is_card: bool) -> dict[str, Any]:
    """A card as plain values."""
    found = card.findings
    return {
        "causes": [one.label for one in found],
        "title": card.title,
        "cost_ns": card.cost_ns,
        "alone_ns": {one.label: one.cost_ns for one in found},
        "path_ns": sum(one.path_ns for one in found),
        "is_card": is_card,
        "ranks": {str(rank): part_ns for one in found for rank, part_ns in one.ranks},
        "detail": "; ".join(one.detail for one in found if one.detail),
        "longest_start_ns": found[0].longest_start_ns,
        "longest_ns": found[0].longest_ns,
        "fix": [
            {**one.fix._asdict(), "change": str(one.fix.change or ""), "options": one.fix.options}
            for one in found
        ],
        "evidence": [{"cause": one.label, **vars(item)} for one in found for item in one.evidence],
    }


def ordered(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Findings by cost, the largest first; a late rank, stage or group of experts may lead."""
    by_cost = sorted(found, key=lambda one: (-one.weight_ns, -one.path_ns, one.label))
    leads = next((one for one in by_cost if _leads(one, found)), None)
    return (leads, *(one for one in by_cost if one is not leads)) if leads else tuple(by_cost)


def _leads(one: Finding, found: tuple[Finding, ...]) -> bool:
    """Whether a finding is on what all else waits for, and costs enough.

    Stages of a pipeline work one after another: what one of them does too long is always less than
    the work of all, so it is compared with what is not that.
    """
    alike = [
        other.weight_ns
        for other in found
        if one.cause != Cause.PIPELINE or other.cause not in _BUSY
    ]
    is_large = one.share >= LEAST_CARD and one.weight_ns >= _LEADS * max(alike)
    return one.cause in LATE and is_large
