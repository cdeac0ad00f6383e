"""Settings of a recording: how it was made, as far as its file says.

`htagraph.profile` has the trace say its PyTorch, the cores that it might use, how often it sampled,
and how long steps take that it did not record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from htagraph.lookup.steps import find_steps
from htagraph.model.events import EventTable
from htagraph.model.recording import Origin
from htagraph.model.units import human_count, human_duration

_FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_modules", "with_flops")
"""Options of torch's profiler that its traces name, and that change how long steps take."""

_NUMBER = re.compile(r"(?<!\d)(\d+)$")


@dataclass(frozen=True)
class Settings:
    """How a recording was made, as far as it says: None is not recorded."""

    skip: int | None = None  # Number of the first recorded step
    steps: int | None = None
    sample_ms: float | None = None  # 0: no stacks were sampled
    flags: tuple[str, ...] | None = None  # Of the profiler
    torch: str | None = None
    cores: int | None = None  # That the process might use
    driver: str | None = None
    host: str | None = None
    n_unrecorded: int = 0  # Steps that were timed after the recording
    unrecorded_step_ns: int = 0  # How long one of them takes

    @classmethod
    def of(cls, events: EventTable, origin: Origin | None) -> Settings:
        """The settings of a recorded rank, by its events and by what else its file says."""
        told: Mapping[str, Any] = origin.metadata if origin else {}
        marks = find_steps(events)["name"].tolist()
        number = _NUMBER.search(str(marks[0])) if marks else None
        skip, n_steps = (int(number[1]), len(marks)) if number else (None, None)
        if not told:
            return cls(skip, n_steps)
        own, sampler, unrecorded = (
            one if isinstance(one, dict) else {}
            for one in map(told.get, ("htagraph", "sampler", "unrecorded"))
        )
        return cls(
            skip,
            n_steps,
            sample_ms=float(sampler.get("interval_ms", 0.0)),
            flags=tuple(flag for flag in _FLAGS if told.get(flag)),
            torch=own.get("torch"),
            cores=own.get("cores"),
            driver=str(told["cuda_driver_version"]) if "cuda_driver_version" in told else None,
            host=told.get("host_name"),
            n_unrecorded=unrecorded.get("steps", 0),
            unrecorded_step_ns=unrecorded.get("step_ns", 0),
        )

    @property
    def asked(self) -> dict[str, object]:
        """What has to be the same in the next recording, of what `htagraph.profile` can be told."""
        every = {"skip": self.skip, "steps": self.steps, "sample_ms": self.sample_ms}
        return {name: value for name, value in every.items() if value is not None}

    def unlike(self, after: Settings) -> list[str]:
        """Why a recording with other settings cannot show what a change saves."""
        said = []
        for name, what in (
            ("skip", "begins at step {}"),
            ("sample_ms", "with samples every {} ms"),
            ("flags", "with {} of the profiler"),
            ("torch", "with PyTorch {}"),
            ("cores", "on {} cores"),
            ("driver", "with driver {}"),
        ):
            both = [getattr(one, name) for one in (self, after)]
            if None not in both and both[0] != both[1]:
                texts = [", ".join(one) or "no option" if name == "flags" else one for one in both]
                said.append(
                    ", ".join(
                        map("{} {}".format, [what.format(t) for t in texts], ("before", "after"))
                    )
                )
        return said

    def slowed_in_words(self, step_ns: float) -> str:
        """How long a step takes recorded and not, as a clause; empty if only one is known."""
        if not step_ns or not self.n_unrecorded:
            return ""
        later = human_count(self.n_unrecorded, "later one")
        free = human_duration(self.unrecorded_step_ns)
        return f"recorded, a step takes {human_duration(step_ns)}; {later}, not recorded, {free}"
