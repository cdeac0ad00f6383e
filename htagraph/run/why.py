"""Why: what an event waited for, as a critical path that ends at it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from htagraph.explain.waited_for import (
    event_sentence,
    stretches,
    told,
    why_frame,
)
from htagraph.findings.path import CriticalPath
from htagraph.lookup.steps import step_events
from htagraph.model.frames import WHY
from htagraph.model.labels import name_label
from htagraph.model.units import human_duration
from htagraph.writers.answering import answers
from htagraph.writers.notebook_cell import table_html


@dataclass(frozen=True, repr=False)
class Why(CriticalPath):
    """Why an event started, or ended, only then: the chain of binding edges that leads to it.

    It is a critical path, of the time up to the event, with all that a path has; its segments tile
    that time.

    Parameters
    ----------
    at_ns : int, optional, unit=ns
        The time at which a device was asked about.

    Examples
    --------
    >>> from htagraph import Trace, synth
    >>> graph = Trace.from_events(synth.timeline('''
    ...     us       |0         10        20        30
    ...     cpu 1    |[launch >a][launch >b]
    ...     stream 7 |     [relu <a          ][gemm <b]
    ... ''')).compile()
    >>> for said in graph.why("gemm").sentences:
    ...     print(said)
    gemm on stream 7 started 24.0 us after the start of the trace, 2.00 us after its launch: ...
    24.0 us on stream 7: relu 19.0 us, launch latency 5.00 us. Before that, relu was launched ...
    Back to the start of the trace: 24.0 us in 2 segments.
    """

    at_ns: int | None = None

    @cached_property
    @answers(WHY)
    def chain(self) -> pd.DataFrame:
        """The segments, latest first, and what each else had to wait for; schema `frames.WHY`."""
        return why_frame(self.dag, self.coded)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The chain in words: what held the event, and what held that, back in time."""
        first = (
            event_sentence(self.dag, self.window, self.at_ns)
            if self.window.anchor >= 0
            else f"{self.window_name} took {human_duration(self.dur_ns)}."
        )
        parts = stretches(self.dag, self.window, self.coded)
        return tuple(told(first, parts, self.segments, self.since))

    @property
    def since(self) -> str:
        """What the chain begins with."""
        events = self.dag.events
        steps = step_events(events)[0]
        begins = steps[events.ts_ns[steps] == self.start_ns]
        if len(begins):
            return f"the start of {name_label(events.names(begins[-1:])[0])}"
        is_whole = self.start_ns == self.dag.span.start_ns
        return f"the start of {'the trace' if is_whole else 'the window'}"

    def __repr__(self) -> str:
        """Summary in one line."""
        return f"Why({self.window.name}, {human_duration(self.dur_ns)}: {self.sentences[0]})"

    def _repr_html_(self) -> str:
        """The sentences, for a notebook."""
        first, *rest = self.sentences
        return table_html([(said,) for said in rest], title=first)
