"""Summary: all that a report says about a window of a trace, as data; and what would help."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import sum_by_code
from htagraph.errors import QueryError
from htagraph.explain.breakdown import OUTSIDE_STEPS, step_names
from htagraph.explain.default_window import left_out_in_words
from htagraph.explain.segments import segment_labels
from htagraph.findings.path import CriticalPath
from htagraph.findings.verdict import LATE, LEAST_ALSO, Verdict
from htagraph.findings.window_bounds import find_bounds
from htagraph.lookup.damage import damage_of
from htagraph.lookup.settings import Settings
from htagraph.model.answers import OPPORTUNITIES, QUALITY
from htagraph.model.arrays import I64
from htagraph.model.frames import FIRST_CHANGES, STEP_SHARES
from htagraph.model.kinds import Bound, Cause, EventKind
from htagraph.model.labels import labels_among, name_label
from htagraph.model.recording import damage_in_words
from htagraph.model.schema import categorical
from htagraph.model.units import human_count, human_duration
from htagraph.queries.quality import quality as quality_of
from htagraph.readers.storage import name_of
from htagraph.replay.predictions import TWICE_AS_FAST, Trials
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace
from htagraph.writers.answering import answers

if TYPE_CHECKING:
    from htagraph.job.path import JobPath


def time_by_step(path: CriticalPath) -> tuple[pd.DataFrame, I64]:
    """Steps of the trace, and the time of the path in each by bound; the last row is outside steps.

    `steps`: ``name``, ``start_ns``, ``dur_ns``. `time_ns` of shape (n_steps + 1, n_bounds).
    """
    steps, pieces = path.steps.frame, path.pieces
    code = pieces["row"].to_numpy() + 1  # from 0, which is outside steps
    code *= len(Bound)
    code += gather(path.bounds, pieces["segment"].to_numpy())
    table = sum_by_code(code, pieces["dur_ns"].to_numpy(), (len(steps) + 1) * len(Bound))
    return steps, np.roll(table.reshape(-1, len(Bound)), -1, axis=0)


def step_shares(path: CriticalPath) -> pd.DataFrame:
    """Bounds of each step that the window touches, if any, then of the time outside steps."""
    steps, table = time_by_step(path)
    if not table[:-1].any():
        return STEP_SHARES.empty()
    total = table.sum(axis=1)
    rows = np.flatnonzero(total)
    order = np.argsort(-table[rows], axis=1, kind="stable")[:, :2]
    share = np.take_along_axis(table[rows], order, axis=1) / total[rows][:, None]
    labels = np.array([*Bound.labels(), ""], dtype=object)
    order = np.where(share > 0, order, len(labels) - 1)
    return STEP_SHARES.frame(
        {
            "step": step_names(
                steps, np.append(np.arange(len(steps)), -1)[rows], outside=OUTSIDE_STEPS
            ),
            "dur_ns": total[rows],
            "bound": labels[order[:, 0]],
            "bound_share": share[:, 0],
            "next_bound": labels[order[:, 1]],
            "next_share": share[:, 1],
        }
    )


NOT_INFERRED = (
    "Nothing was inferred (--no-infer): waits without a record stay unknown or count as host time."
)
"""Caveat of a report on graphs without inferred edges."""

_N_RULES = 3
"""Rules named in the sentence on inferred time: chosen, to stay one sentence."""

_MUCH_INFERRED = 0.25
"""Share of the path on inferred edges from which on the first screen says so: chosen. Pinned by
`test_summary.py::test_a_path_of_which_a_quarter_is_inferred_says_so`."""

_SLOWED = 1.25
"""Factor by which recorded steps have to be longer than others for the first screen to say so:
chosen, as the two differ by some percent in any run. Pinned by `test_summary.py`."""

_LEAST_SHARE = 0.0005
"""Share of the path below which inferred time is not mentioned: it would read 0.0%."""
_ONE_OF_MANY = (
    "its communication includes waiting for slower ranks; give the traces of all ranks to tell."
)


class PathSummary(ABC):
    """What a report says about any critical path, of a rank or of a job."""

    @cached_property
    @abstractmethod
    def path(self) -> CriticalPath | JobPath:
        """The critical path."""

    @cached_property
    @abstractmethod
    def quality(self) -> pd.DataFrame:
        """What is linked, classified and recorded, schema `answers.QUALITY`."""

    @property
    @abstractmethod
    def window_caveats(self) -> list[str]:
        """What one has to know of the window and its graph."""

    @property
    def notes(self) -> list[str]:
        """What one has to know beyond the window."""
        return []

    @cached_property
    @abstractmethod
    def settings(self) -> Settings:
        """How the run was recorded, or the first rank of a job."""

    @property
    def slowed(self) -> list[str]:
        """A caveat if recording made steps much longer."""
        settings, step_ns = self.settings, self.path.step_ns
        said = settings.slowed_in_words(step_ns)
        if not said or step_ns < _SLOWED * settings.unrecorded_step_ns:
            return []
        small = "small operators and Python are shorter than they look here"
        return [f"{said.capitalize()}. If nothing else ran on the machine, {small}."]

    @property
    def caveats(self) -> list[str]:
        """All that one has to know to read the verdict."""
        return [*self.window_caveats, *self.notes]

    @property
    def window_name(self) -> str:
        """Name of the window."""
        return self.path.window_name

    @cached_property
    def by_bound(self) -> pd.DataFrame:
        """The path by bound, schema `frames.BREAKDOWN`."""
        return self.path.breakdown(by="bound")

    @cached_property
    def by_op(self) -> pd.DataFrame:
        """The path by innermost operator, schema `frames.BREAKDOWN`."""
        return self.path.breakdown(by="op")

    @cached_property
    def by_name(self) -> pd.DataFrame:
        """The path by what ran, schema `frames.BREAKDOWN`."""
        return self.path.breakdown(by="name")

    @property
    def weak_checks(self) -> pd.DataFrame:
        """Rows of `quality` that are not good."""
        return self.quality[self.quality["verdict"] != "good"]

    def labels_of(self, names: Iterable[str]) -> Mapping[str, str]:
        """Short names that are distinct in the trace, if it is one trace."""
        del names
        return {}


@dataclass(frozen=True)
class Summary(PathSummary):
    """Everything a report says about a window of a trace.

    Parameters
    ----------
    trace : Trace
    graph : TraceGraph
        The window that is reported on.

    Examples
    --------
    >>> import htagraph as hg
    >>> trace = hg.load(hg.demo_trace("dataloader"))
    >>> hg.Summary(trace, trace.compile()).verdict.findings[0].title
    'Data loading'
    """

    trace: Trace
    graph: TraceGraph

    @classmethod
    def of(cls, trace: Trace, graph: TraceGraph, window: str = "") -> Summary:
        """Summary of a window of a graph; by default of its default window."""
        return cls(trace, graph.window(window) if window else graph)

    @property
    def name(self) -> str:
        """Name of the trace: that of its file, without the usual endings."""
        if self.trace.path is None:
            return "trace"
        name = name_of(self.trace.path)
        for ending in (".gz", ".json", ".trace", ".pt"):
            name = name.removesuffix(ending)
        return name or "trace"

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path of the window."""
        return self.graph.critical_path()

    @cached_property
    def n_kernels(self) -> int:
        """Number of kernels in the whole trace."""
        return int(np.count_nonzero(self.trace.recording.events.kind == EventKind.KERNEL))

    @cached_property
    def world_size(self) -> int | None:
        """Number of ranks of the job, None where the file does not say."""
        return self.trace.world_size

    @cached_property
    def settings(self) -> Settings:
        """How the run was recorded."""
        return Settings.of(self.graph.dag.events, self.graph.origin)

    @property
    def window_caveats(self) -> list[str]:
        """What one has to know of the window and its graph."""
        left_out = self.graph.left_out
        said = [*([left_out_in_words(left_out)] if left_out else []), *self.slowed]
        return said if self.graph.dag.notes.get("is_inferred", 1) else [*said, NOT_INFERRED]

    @property
    def damage(self) -> tuple[str, ...]:
        """What of the window is damaged, in sentences."""
        return damage_in_words(damage_of(self.graph.dag, self.graph.interval))

    @property
    def unmatched_files(self) -> tuple[str, ...]:
        """Companion files that match nothing in the trace, each with why."""
        lost = self.trace.attached.query("n_matched == 0")
        return tuple(
            f"{path} matches nothing in the trace: {detail}"
            for path, detail in zip(lost["path"], lost["detail"], strict=True)
        )

    @property
    def harmless_repairs(self) -> pd.DataFrame:
        """Repairs of the file that lose nothing, schema `frames.REPAIRS`."""
        repairs = self.trace.repairs
        return repairs[repairs["damage"] == ""]

    @property
    def notes(self) -> list[str]:
        """What one has to know beyond the window: other ranks, files that match nothing."""
        waits = any(finding.cause == Cause.COMMUNICATION for finding in self.verdict.top_findings)
        one_of_many = waits and (self.world_size or 1) > 1
        said = [f"One of {self.world_size} ranks: {_ONE_OF_MANY}"] if one_of_many else []
        is_inferred = self.path.inferred_share >= _MUCH_INFERRED
        return [*said, *([self.inferred] if is_inferred else []), *self.unmatched_files]

    @property
    def facts(self) -> str:
        """Rank, size and length of the trace, in one line."""
        simulated = "simulated " if self.trace.metadata.get("simulated") is True else ""
        of = f" of {self.world_size}" if self.world_size else ""
        assumed = " (not recorded: assumed)" if self.trace.rank_source == "default" else ""
        parts = [
            f"{simulated}rank {self.trace.rank}{of}{assumed}",
            human_count(len(self.trace.recording.events), "event"),
            human_count(self.n_kernels, "kernel"),
            human_count(len(self.trace.steps), "step"),
            human_duration(self.graph.dag.span.dur_ns),
        ]
        return " · ".join(parts)

    @cached_property
    def verdict(self) -> Verdict:
        """What limits the window."""
        return find_bounds(self.path)

    @cached_property
    @answers(OPPORTUNITIES)
    def opportunities(self) -> pd.DataFrame:
        """What would help, and by how much; schema `answers.OPPORTUNITIES`."""
        _ = self.verdict  # by the same replays
        trials = self.path.trials
        del self.path.__dict__["trials"]  # they are larger than the graph
        return self.path.excerpt.scaled(trials.opportunities)

    def labels_of(self, names: Iterable[str]) -> Mapping[str, str]:
        """Short names that are distinct in the trace."""
        return labels_among(names, self.graph.dag.events.symbols.texts)

    @cached_property
    def first_changes(self) -> pd.DataFrame:
        """What one can do, largest saving first, schema `frames.FIRST_CHANGES`."""
        if self.verdict.withheld:
            return FIRST_CHANGES.empty()
        trials, by = self.path.trials, self.path.excerpt.factor
        found = first_changes(self.verdict, trials, self.labels_of, by=by)
        del self.path.__dict__["trials"]  # they are larger than the graph
        return found

    @cached_property
    def inferred(self) -> str:
        """How much of the path rests on inferred dependencies, in one sentence; empty for none."""
        dag, path = self.graph.dag, self.path.coded
        columns = {
            "dur_ns": path.dur_ns,
            "rule": categorical(*segment_labels(dag, path, "rule")),
            "is_inferred": path.is_inferred(dag),
        }
        return inferred_in_words(pd.DataFrame(columns, copy=False))

    @cached_property
    @answers(STEP_SHARES)
    def by_step(self) -> pd.DataFrame:
        """The path by step, schema `frames.STEP_SHARES`."""
        return step_shares(self.path)

    @cached_property
    def used(self) -> pd.DataFrame:
        """How full each device is, schema `answers.UTILIZATION`."""
        return self.graph.utilization()

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Where its warp slots go, schema `answers.UTILIZATION_LOSSES`."""
        return self.graph.utilization_losses()

    @cached_property
    @answers(QUALITY)
    def quality(self) -> pd.DataFrame:
        """What is linked, classified and recorded, schema `answers.QUALITY`."""
        return quality_of(self.graph.dag, self.graph.interval, self.path.coded)


def inferred_in_words(segments: pd.DataFrame) -> str:
    """Share of a path on inferred edges, and of the rules with most of it; empty for 0.0%."""
    whole_ns = max(int(segments["dur_ns"].sum()), 1)
    inferred = segments[segments["is_inferred"]]
    by_rule = inferred.groupby("rule", observed=True)["dur_ns"].sum() / whole_ns
    by_rule = by_rule[by_rule >= _LEAST_SHARE].sort_values(ascending=False, kind="stable")
    if by_rule.empty:
        return ""
    named = ", ".join(f"{rule} {share:.1%}" for rule, share in by_rule.head(_N_RULES).items())
    more = ", …" if len(by_rule) > _N_RULES else ""
    share = int(inferred["dur_ns"].sum()) / whole_ns
    return f"{share:.1%} of the path is inferred: {named}{more}."


ALONE = "What the run is shorter by with each change alone, replayed. Savings do not add up."
NOT_REPLAYED = (
    "This job has too many events to be replayed for a report; htagraph what-if handles larger "
    "jobs."
)
NOT_MATCHED = (
    "Changes are not replayed, as no collectives could be matched between ranks; a report on one "
    "rank replays them for it."
)
UNCHANGED = "None of the changes tried makes this run shorter."

_PARTS = {
    "kernel": "{} twice as fast",
    "operator": "{} twice as fast",
    "function": "without {} and all that it calls",
    "Python code": "no time in code {}",
    "wait": "no wait in {}",
    "synchronous copy": "no wait in {}",
}
"""Changes to a part of a run, in words; those to all of it are the fixes of findings, and fusions
take longer to find."""
_N_FIRST = 8
"""Rows of `first_changes`. A limit of the screen: `opportunities` has all. Pinned by
test_doctor.
"""


@answers(FIRST_CHANGES)
def first_changes(
    verdict: Verdict,
    trials: Trials[Any],
    labels_of: Callable[[Iterable[str]], Mapping[str, str]],
    *,
    by: float = 1.0,
) -> pd.DataFrame:
    """What one can do, largest saving first: the fixes of a verdict, and changes to parts.

    Each change is replayed once, alone: a part keeps half of its time, or none, and a late rank or
    slow stage keeps up. `by`: how many times as long as what is replayed the window is.
    """
    least_ns = max(LEAST_ALSO * verdict.dur_ns, 1)
    said = [
        (one.cost_ns or 0, "", f"{one.title}: {one.if_gone}")
        if one.cause in LATE
        else (one.fix.saves_ns or 0, "", one.fix.do.rstrip("."))
        for one in verdict.top_findings
    ]
    for one in takewhile(lambda one: one.kind != "fusion", trials.of_parts()):
        if one.kind in _PARTS and (one.kind != "kernel" or one.left == TWICE_AS_FAST):
            with suppress(QueryError):
                saved_ns = round(by * trials.rehearsal.saved_ns(one.changes))
                said.append((saved_ns, one.kind, one.target))
    first = sorted((one for one in said if one[0] >= least_ns), key=lambda one: -one[0])[:_N_FIRST]
    labels = labels_of(target for _, kind, target in first if kind)
    times = np.array([saved_ns for saved_ns, *_ in first], dtype=np.int64)
    return FIRST_CHANGES.frame(
        {
            "change": [
                _PARTS[kind].format(labels.get(target) or _short(kind, target)) if kind else target
                for _, kind, target in first
            ],
            "saves_ns": times,
            "saves_share": times / max(verdict.dur_ns, 1),
        }
    )


def clocks_in_words(error_ns: int) -> str:
    """How far the clocks of a job's ranks may be off, in one sentence."""
    if not error_ns:
        return "The ranks' clocks agree to the nanosecond."
    return f"Rank clocks may be off by {human_duration(error_ns)}; both ends allow for it."


def _short(kind: str, target: str) -> str:
    """A target by its short name; of code, that of what is next to it."""
    where, space, neighbour = target.partition(" ") if kind == "Python code" else ("", "", target)
    return f"{where}{space}{name_label(neighbour)}"
