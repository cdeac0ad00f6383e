"""The ranks of a job on one clock: collectives matched, who waited for whom, who was late and why.

All of it covers the whole traces, whatever the window: everything that was recorded helps to match
collectives and to fit clocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from htagraph.arrays.clocks import Clock
from htagraph.arrays.intervals import Cover
from htagraph.errors import ClockSkewWarning, IncompleteTraceWarning
from htagraph.job.bandwidths import BandwidthKey, measure_bandwidths
from htagraph.job.clocks import Clocks, fit_clocks
from htagraph.job.collectives import Matching, match_collectives, measure_waits
from htagraph.job.delay_costs import (
    WaitComparisons,
    charged_waits,
    compare_late_arrivals,
    compare_waits,
)
from htagraph.job.experts import ExpertWork, find_expert_work, token_surplus
from htagraph.job.groups import Kind, ProcessGroup, group_kinds, layout_frame
from htagraph.job.lateness import Times, excess_times, late_arrivals, late_hosts
from htagraph.job.pipeline import Pipeline, join_ranks, with_peers, with_stages
from htagraph.job.pipeline_actions import RankActions
from htagraph.job.rank_segments import RankEnds, RankSegment
from htagraph.job.rank_work import on_rank_segments, times_by_name
from htagraph.job.ranks import RankGraphs, listed
from htagraph.model.arrays import brief
from htagraph.replay.changes import TokenSurplus


def apart_in_words(ranks: Sequence[int]) -> str:
    """What is said of ranks that are not aligned."""
    many = len(ranks) > 1
    return (
        f"no clock aligns rank{'s' if many else ''} {listed(ranks)} with the others: "
        f"{'they' if many else 'it'} may belong to another job, group, step or capture. "
        f"Path, window and findings are without {'them' if many else 'it'}."
    )


@brief
@dataclass(frozen=True)
class Timeline:
    """The ranks of a job in common time."""

    graphs: RankGraphs
    known: Clocks | None = None  # The clocks of the ranks, where they need not be fitted

    @cached_property
    def _matching(self) -> Matching:
        summaries = self.graphs.summaries
        starts = {rank: one.starts for rank, one in summaries.items()}
        found = match_collectives(self.tables, self._hosts, starts, self._lost_ns)
        for why in found.unmatched:
            warnings.warn(why, IncompleteTraceWarning, stacklevel=4)
        return found

    @cached_property
    def tables(self) -> dict[int, pd.DataFrame]:
        """The collectives of each rank; sends and receives of a pipeline with their peers."""
        summaries = self.graphs.summaries
        tables = {rank: one.collectives for rank, one in summaries.items()}
        found = self._rank_actions
        is_named = all((one.actions["stage"] >= 0).any() for one in found.values())
        if len(found) < 2 or not (is_named or len(set(self._hosts.values())) == 1):
            return tables
        # Where stages are not named, times show their order: clocks of one host are one.
        known = join_ranks(found, dict.fromkeys(found, Clock()), is_timed=not is_named)
        return tables if known is None else with_peers(tables, found, known)

    @property
    def _rank_actions(self) -> dict[int, RankActions]:
        summaries = self.graphs.summaries
        found = with_stages({rank: one.pipeline for rank, one in summaries.items() if one.pipeline})
        n_ranks = max((one.world_size or 0 for one in summaries.values()), default=0)
        is_named = all((one.actions["stage"] >= 0).all() for one in found.values())
        return found if is_named or len(found) >= n_ranks else {}

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """The pipeline of aligned ranks, None if they are none."""
        found = {rank: one for rank, one in self._rank_actions.items() if rank in self.aligned}
        return join_ranks(found, self.clocks)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each aligned rank is drawn: by number, ranks of a pipeline by stage."""
        if self.pipeline is None:
            return [(rank, rank) for rank in self.aligned]
        acts = self.pipeline.actions.groupby("rank").agg({"replica": "first", "stage": "min"})
        by_stage = acts.sort_values(["replica", "stage"]).index.tolist()
        return list(enumerate([*by_stage, *(one for one in self.aligned if one not in by_stage)]))

    @property
    def blocked(self) -> dict[int, Cover]:
        """When ranks were blocked in sends and receives of a pipeline, in common time."""
        return {
            rank: Cover(*self.clocks[rank].to_common(one.waits.T))
            for rank, one in self._rank_actions.items()
        }

    @property
    def unmatched(self) -> tuple[str, ...]:
        """Which collectives could not be matched, and why, in sentences."""
        return self._matching.unmatched

    @cached_property
    def fitted(self) -> Clocks:
        """The clocks of all ranks against the first one's."""
        if self.known is not None:
            return self.known
        ranks = list(self.graphs.summaries)
        return fit_clocks(self._matching.members, ranks, self._hosts, self._lost_ns)

    @property
    def _hosts(self) -> dict[int, str]:
        return {rank: one.host for rank, one in self.graphs.summaries.items()}

    @property
    def _lost_ns(self) -> dict[int, int]:
        """What to add to times of ranks that lost their host, if they are on that of all others.

        A truncated file lacks its end, where host and base time are.
        """
        summaries = self.graphs.summaries.values()
        known = {(one.host, one.base_ns) for one in summaries if one.host}
        if len(known) != 1:
            return {}
        base_ns = known.pop()[1]
        return {one.rank: base_ns - one.base_ns for one in summaries if not one.host}

    @cached_property
    def aligned(self) -> tuple[int, ...]:
        """The ranks whose times can be compared, ascending; path, window and findings are theirs.

        Without ranks that no clock aligns with these, and ranks of another capture.
        """
        found = self.fitted.aligned(self._ends)
        if apart := sorted(set(self.graphs.summaries).difference(found)):
            warnings.warn(apart_in_words(apart), ClockSkewWarning, stacklevel=3)
        return found

    @cached_property
    def clocks(self) -> dict[int, Clock]:
        """What turns times of each rank into common time."""
        return {rank: self.fitted.clock(rank) for rank in self.graphs.summaries}

    @property
    def takers(self) -> pd.DataFrame:
        """Who of the aligned ranks takes part in what: `Matching.takers`."""
        takers = self._matching.takers
        return takers[takers["rank"].isin(self.aligned)]

    @cached_property
    def members(self) -> pd.DataFrame:
        """The members of matched collectives on aligned ranks: `Matching.members`."""
        matched = self._matching.members
        usable = matched[matched["rank"].isin(self.aligned)]
        size = usable.groupby("match")["rank"].transform("size")
        return usable[size >= 2].reset_index(drop=True)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """The matched collectives of aligned ranks, `job_answers.MATCHED_COLLECTIVES`."""
        return measure_waits(self.members, self.fitted, self.takers, self._ends)

    def bandwidths(self, by: BandwidthKey = "size") -> pd.DataFrame:
        """How fast matched collectives are, and what limits them; see `Job.bandwidths`."""
        return measure_bandwidths(self.collectives, self.tables, by=by)

    @cached_property
    def expert_work(self) -> ExpertWork:
        """The work of each rank between the dispatch and the combine of each expert layer."""
        summaries = self.graphs.summaries
        return find_expert_work(
            self.members,
            {rank: one.exchanges for rank, one in summaries.items()},
            embeds=any(one.context.embeds for one in summaries.values()),
        )

    @cached_property
    def token_surplus(self) -> TokenSurplus:
        """What each rank works on tokens beyond the mean, on its own clock."""
        return token_surplus(self.expert_work)

    @property
    def _ends(self) -> dict[int, RankEnds]:
        return {rank: one.ends for rank, one in self.graphs.summaries.items()}

    @cached_property
    def late_arrivals(self) -> pd.DataFrame:
        """Who arrived late at which collective, and by how much; see `lateness.late_arrivals`."""
        pipeline, found = self.pipeline, self.collectives
        if pipeline is not None:
            # Stages begin and end one after another: only ranks of one stage can be compared.
            found = found[pipeline.of_one_stage(found)]
        return late_arrivals(found, self.stages, self.late_hosts)

    @property
    def stages(self) -> dict[int, int]:
        """The stage of each rank in a pipeline, -1 if unknown."""
        return dict(zip(self.layout["rank"].tolist(), self.layout["stage"].tolist(), strict=True))

    @cached_property
    def late_hosts(self) -> dict[int, str]:
        """The ranks of hosts that are late as a whole, and their host."""
        return late_hosts(self.collectives, self._hosts, self.stages)

    def group_kinds(self, given: str = "") -> dict[ProcessGroup, Kind]:
        """The kind of each process group whose kind is known; see `layout.group_kinds`."""
        groups = {rank: one.groups for rank, one in self.graphs.summaries.items()}
        return group_kinds(groups, self.expert_work.rows["group"].unique().tolist(), given)

    @cached_property
    def layout(self) -> pd.DataFrame:
        """The place of each rank among the others, `job_answers.LAYOUT`."""
        return layout_frame(self.group_kinds(), self._hosts)

    @cached_property
    def compared(self) -> list[RankSegment]:
        """The rank segments whose comparison shows why ranks were late."""
        late = self.late_arrivals
        return compare_late_arrivals(late, self.collectives, self.tables, self._ends, self.clocks)

    @cached_property
    def excess_times(self) -> pd.DataFrame:
        """What took late ranks longer than the runner-up; see `lateness.excess_times`."""
        times = self.graphs.ask(on_rank_segments(times_by_name, self.compared))
        return excess_times(self.late_arrivals, times)

    @cached_property
    def compared_waits(self) -> WaitComparisons:
        """The rank segments whose comparison shows what waits are due to."""
        summaries = self.graphs.summaries
        return compare_waits(
            self.collectives,
            self.tables,
            {rank: one.ready for rank, one in summaries.items()},
            self._ends,
            self.clocks,
        )

    @cached_property
    def charged_waits(self) -> tuple[pd.DataFrame, Times]:
        """What each wait is due to; see `delay_costs.charged_waits`."""
        compared = self.compared_waits
        times = self.graphs.ask(on_rank_segments(times_by_name, compared.rank_segments))
        return charged_waits(compared, times)
