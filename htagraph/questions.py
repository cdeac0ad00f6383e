"""Every question's signature, once: `TraceGraph` asks its own window, `Job` asks every rank and adds a column ``rank``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import pandas as pd

from htagraph.errors import QueryError
from htagraph.queries.annotations import (
    annotation_breakdown,
    device_annotation_breakdown,
    kernel_annotations,
)
from htagraph.queries.collectives import collectives
from htagraph.queries.counters import counters, queue_blocked
from htagraph.queries.idle import idle_categories, idle_time
from htagraph.queries.idle_intervals import idle_intervals
from htagraph.queries.kernels import kernel_breakdown, kernel_durations
from htagraph.queries.launches import launch_stats
from htagraph.queries.memory import memory_timeline
from htagraph.queries.operators import operator_breakdown, operator_tree
from htagraph.queries.overlap import exposed_communication, overlap
from htagraph.queries.patterns import kernel_patterns
from htagraph.queries.quality import quality
from htagraph.queries.step_times import step_times
from htagraph.queries.temporal import temporal_breakdown

__all__ = ["QUESTIONS", "Question", "Questions"]

Question = Callable[..., pd.DataFrame]
"""A function of a graph's data, a window and options."""

QUESTIONS: dict[str, Question] = {
    "temporal_breakdown": temporal_breakdown,
    "idle_time": idle_time,
    "idle_intervals": idle_intervals,
    "idle_categories": idle_categories,
    "kernel_breakdown": kernel_breakdown,
    "kernel_durations": kernel_durations,
    "overlap": overlap,
    "exposed_communication": exposed_communication,
    "launch_stats": launch_stats,
    "counters": counters,
    "queue_blocked": queue_blocked,
    "kernel_patterns": kernel_patterns,
    "annotation_breakdown": annotation_breakdown,
    "kernel_annotations": kernel_annotations,
    "device_annotation_breakdown": device_annotation_breakdown,
    "operator_breakdown": operator_breakdown,
    "operator_tree": operator_tree,
    "memory_timeline": memory_timeline,
    "step_times": step_times,
    "collectives": collectives,
    "quality": quality,
}
"""All questions by name, for scripts and the command line."""


class Questions(ABC):
    """What can be asked of a graph; every answer is a DataFrame of a declared schema in `htagraph.model.frames`."""

    @abstractmethod
    def _ask(self, question: Question, **options: Any) -> pd.DataFrame:  # noqa: ANN401  options of any question
        """Return the answer to a question."""

    def ask(self, question: str, **options: Any) -> pd.DataFrame:  # noqa: ANN401  options of any question
        """Return the answer to a question by its name.

        Parameters
        ----------
        question : str
            A key of `QUESTIONS`.
        **options
            As for the method of that name.

        Raises
        ------
        QueryError
            If there is no such question; the hint lists those there are.
        """
        if question not in QUESTIONS:
            raise QueryError(
                f"there is no question {question!r}.",
                hint=f"one of {', '.join(sorted(QUESTIONS))}.",
            )
        return self._ask(QUESTIONS[question], **options)

    def temporal_breakdown(self) -> pd.DataFrame:
        """Return how each device spent the window: compute, exposed communication, exposed memory, idle; they tile it."""
        return self._ask(temporal_breakdown)

    def idle_time(self, *, per: Literal["device", "stream"] = "device") -> pd.DataFrame:
        """Return the idle time of each device, or stream, by cause; the causes add up to the idle time."""
        return self._ask(idle_time, per=per)

    def idle_intervals(self, *, per: Literal["device", "stream"] = "device") -> pd.DataFrame:
        """Return every idle interval of each device, or stream, tiled by its causes."""
        return self._ask(idle_intervals, per=per)

    def idle_categories(self, *, kernel_wait_ns: int = 30_000) -> pd.DataFrame:
        """Return idle time per stream as host wait, kernel wait and other, by HTA's definition."""
        return self._ask(idle_categories, kernel_wait_ns=kernel_wait_ns)

    def kernel_breakdown(
        self, *, by: Literal["class", "name", "op", "stream", "rule"] = "class"
    ) -> pd.DataFrame:
        """Return number and time of device work by class, name, operator, stream, or the rule that classified it."""
        return self._ask(kernel_breakdown, by=by)

    def kernel_durations(self, *, name: str | re.Pattern[str] = "*") -> pd.DataFrame:
        """Return the device events with a name one by one, in order of time."""
        return self._ask(kernel_durations, name=name)

    def overlap(self) -> pd.DataFrame:
        """Return how much communication ran beside computation, and how much was exposed."""
        return self._ask(overlap)

    def exposed_communication(self) -> pd.DataFrame:
        """Return the exposed time of each communication kernel, and why it could not overlap."""
        return self._ask(exposed_communication)

    def launch_stats(
        self, *, launch_cutoff_ns: int = 50_000, delay_cutoff_ns: int = 100_000
    ) -> pd.DataFrame:
        """Return one row per launch: its call, its work, its delay, and what is unusual about it."""
        return self._ask(
            launch_stats, launch_cutoff_ns=launch_cutoff_ns, delay_cutoff_ns=delay_cutoff_ns
        )

    def counters(
        self, *, name: Literal["queue_length", "memory_bandwidth"] = "queue_length"
    ) -> pd.DataFrame:
        """Return the points at which a counter changes, per stream or device."""
        return self._ask(counters, name=name)

    def queue_blocked(self, *, max_queue_length: int = 1_024) -> pd.DataFrame:
        """Return for how long each stream's launch queue was full."""
        return self._ask(queue_blocked, max_queue_length=max_queue_length)

    def kernel_patterns(
        self,
        *,
        under: str | re.Pattern[str] | None = None,
        min_length: int = 2,
        max_length: int = 16,
        rank_by: str = "device_ns",
        top: int = 100,
    ) -> pd.DataFrame:
        """Return frequent sequences of kernels, under an operator or along streams, and the gaps a fusion would save."""
        return self._ask(
            kernel_patterns,
            under=under,
            min_length=min_length,
            max_length=max_length,
            rank_by=rank_by,
            top=top,
        )

    def annotation_breakdown(self, *, name: str | re.Pattern[str] = "*") -> pd.DataFrame:
        """Return the device time under host annotations."""
        return self._ask(annotation_breakdown, name=name)

    def kernel_annotations(self) -> pd.DataFrame:
        """Return for each device event the annotation, operator and module it was launched under."""
        return self._ask(kernel_annotations)

    def device_annotation_breakdown(self, *, name: str | re.Pattern[str] = "*") -> pd.DataFrame:
        """Return the annotations as they were projected onto the device."""
        return self._ask(device_annotation_breakdown, name=name)

    def operator_breakdown(self) -> pd.DataFrame:
        """Return inclusive and exclusive host time, and device time, by operator."""
        return self._ask(operator_breakdown)

    def operator_tree(self, *, max_depth: int = 100) -> pd.DataFrame:
        """Return the call tree of operators with inclusive and exclusive time."""
        return self._ask(operator_tree, max_depth=max_depth)

    def memory_timeline(self) -> pd.DataFrame:
        """Return allocations and releases over time, where they were recorded."""
        return self._ask(memory_timeline)

    def step_times(self) -> pd.DataFrame:
        """Return length and device use of each step."""
        return self._ask(step_times)

    def collectives(self) -> pd.DataFrame:
        """Return the collectives of the rank in the order of their launches."""
        return self._ask(collectives)

    def quality(self) -> pd.DataFrame:
        """Return what is linked, classified and recorded, and which answers are weaker."""
        return self._ask(quality)
