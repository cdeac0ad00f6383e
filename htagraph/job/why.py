"""JobWhy: what an event of one rank waited for, across ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from htagraph.explain.waited_for import MOST_STRETCHES, Stretch, told
from htagraph.job.path import JobPath, JobRoute
from htagraph.job.rank_segments import RankEnds, RankSegment, find_rank_segments
from htagraph.job.rank_work import on_rank_segments, told_in
from htagraph.job.timeline import Timeline
from htagraph.model.units import human_duration
from htagraph.run.why import Why
from htagraph.writers.notebook_cell import table_html


@dataclass(frozen=True, repr=False)
class JobWhy(JobPath):
    """Why an event of a rank started, or ended, only then: the chain that leads to it.

    It is a path of the job, of the time up to the event, with all that such a path has; its
    segments tile that time.

    Parameters
    ----------
    asked, since : str
        What it leads to, in a sentence, and what it begins with.
    """

    asked: str = ""
    since: str = ""

    @property
    def window_name(self) -> str:
        """Name of what it leads to, in a sentence."""
        return self.name

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The chain in words: what held the event, and what held that, back in time."""
        return tuple(told(self.asked, self._stretches, self.segments, self.since))

    @cached_property
    def _stretches(self) -> list[Stretch]:
        """The last stretches of the chain, latest first."""
        route = self.route.rank_segments
        last = route[-MOST_STRETCHES:]
        clipped = [self._clipped(one) for one in last]
        found = self.timeline.graphs.ask(on_rank_segments(told_in, clipped), on_error="raise")
        parts: list[Stretch] = []
        for number, one in reversed([*enumerate(last)]):
            if len(parts) >= MOST_STRETCHES:  # whole ones: what is earlier begins where they end
                break
            moved = self._in_common_time(one, found[one.rank][number])
            if moved and one.hops:
                late = route[len(route) - len(last) + number - 1].rank
                came_ns = self.timeline.clocks[one.rank].to_common(one.local_start_ns)
                waited_ns = one.start_ns - int(came_ns)
                why = f"rank {one.rank} waited {human_duration(waited_ns)} for rank {late}"
                moved[-1] = moved[-1]._replace(reason=why)
            parts += moved
        return parts

    def _clipped(self, one: RankSegment) -> RankSegment:
        """A rank segment on its rank's clock, without what was waited before a hop."""
        dur_ns = one.end_ns - max(one.start_ns, self.start_ns)
        return replace(one, local_start_ns=one.local_end_ns - dur_ns)

    def _in_common_time(self, one: RankSegment, parts: list[Stretch]) -> list[Stretch]:
        """Stretches of a rank segment, with their rank."""
        clock, moved = self.timeline.clocks[one.rank], []
        for part in parts:
            start_ns, end_ns = clock.to_common([part.start_ns, part.end_ns]).tolist()
            where = f"rank {one.rank}, {part.where}"
            moved.append(part._replace(start_ns=start_ns, end_ns=end_ns, where=where))
        return moved

    def __repr__(self) -> str:
        """Summary in one line."""
        return f"JobWhy({self.name}, {human_duration(self.dur_ns)}: {self.asked})"

    def _repr_html_(self) -> str:
        """The sentences, for a notebook."""
        first, *rest = self.sentences
        return table_html([(said,) for said in rest], title=first)


def job_why(
    timeline: Timeline, ends: Mapping[int, RankEnds], rank: int, own: RankEnds, found: Why
) -> JobWhy:
    """The chain to an event of a rank across ranks; `own`: where that of the rank alone runs."""
    begun = {number: RankEnds(one.start_ns, one.start_ns, -1, -1) for number, one in ends.items()}
    whole = {**begun, rank: replace(own, start_ns=ends[rank].start_ns)}
    tables = {number: timeline.tables[number] for number in ends}
    matched = timeline.collectives[timeline.collectives["rank"].isin(ends)]
    parts = find_rank_segments(tables, whole, matched, timeline.clocks)
    begins = [int(timeline.clocks[number].to_common(one.start_ns)) for number, one in ends.items()]
    start_ns = max(int(timeline.clocks[rank].to_common(own.start_ns)), *begins)
    kept = tuple(one for one in parts if one.end_ns > start_ns) or tuple(parts[-1:])
    route = JobRoute(kept, min(start_ns, kept[-1].end_ns), f"{found.window.name}, rank {rank}")
    path = JobWhy.along(route, timeline)
    first, since = found.sentences[0], f"{found.since} of rank {rank}"
    return replace(path, asked=f"Rank {rank}: {first}", since=since)
