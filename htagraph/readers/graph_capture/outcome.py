"""What a capture added to a recording, or why nothing, in words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import I64
from htagraph.model.units import human_count
from htagraph.readers.graph_capture.captured_graphs import CapturedGraphs
from htagraph.readers.graph_capture.joining import CODE_BYTES, Joined, Program, Replays, share_alike


class Outcome(NamedTuple):
    """All captures, all replays, and which were joined."""

    programs: list[Program]
    replays: Replays
    found: Joined

    def in_words(self, file: CapturedGraphs, at: int) -> str:
        """A line on a file, by its number."""
        mine = np.flatnonzero(self.found.file == at)
        return self._joined(file, mine) if len(mine) else self._refused(at)

    def _joined(self, file: CapturedGraphs, mine: I64) -> str:
        """How many replays and kernels, and what reservations there are."""
        graph = self.found.graph[mine]
        n_run = np.array([len(self.replays.graphs[one]) // CODE_BYTES for one in mine.tolist()])
        lacks = np.bincount(file.graph, minlength=len(file.batch))[graph] - n_run
        run, captured = self.replays.batch[mine], file.batch[graph]
        is_unknown, is_padded = (run < 0) | (captured < 0), (run >= 0) & (run < captured)
        run_of = f"{human_count(len(mine), 'replay')} of "
        run_of += human_count(len(np.unique(graph)), "captured graph")
        notes = [f"{run_of}: all {human_count(int(n_run.sum()), 'kernel')} have the same names"]
        if lacks.any():
            notes.append(
                f"{human_count(int((lacks > 0).sum()), 'replay')} without the end of the capture "
                f"(at most {human_count(int(lacks.max()), 'kernel')}), which was not recorded"
            )
        if is_padded.any():
            notes.append(
                f"{human_count(int(is_padded.sum()), 'replay')} of a smaller batch, padded"
            )
        if is_unknown.any():
            notes.append("a batch size is unknown, and another may have kernels of the same names")
        if n_others := int((self.found.file < 0).sum()):
            notes.append(f"{human_count(n_others, 'replay')} left that fit no capture")
        return "; ".join(notes)

    def _refused(self, at: int) -> str:
        """Why no replay was joined: what fits best, and what to do."""
        replays, found = self.replays, self.found
        if not replays.graphs:
            return "nothing to join: the trace replays no captured graph"
        if (found.file >= 0).any():
            return "the trace does not replay its graphs"
        own = [one for one in self.programs if one.file == at]
        n_graphs = human_count(sum(len(one.graphs) for one in own), "captured graph")
        counts = f"{human_count(len(replays.graphs), 'replay')}, {n_graphs}"
        if found.n_ambiguous:
            return (
                f"refused: {human_count(found.n_ambiguous, 'replay')} fit several captures by the "
                f"names of their kernels, and number and order do not tell which ({counts}); add "
                "only the capture of the batch size that was run, and record whole steps"
            )
        if found.n_of_other_batch:
            sizes = max(one.batch for one in own)
            return (
                f"refused: it is of batch size {sizes:,}, and the trace runs "
                f"{int(replays.batch.max()):,}; add the capture of that size"
            )
        longest = max(replays.graphs, key=len)
        alike = [share_alike(longest, graph) for one in own for graph in one.graphs]
        same, of = max(alike, key=lambda one: one[0] / max(one[1], 1), default=(0, 1))
        n_kernels = len(longest) // CODE_BYTES
        return (
            f"refused: {same / max(of, 1):.0%} of the {n_kernels:,} kernels of the longest replay "
            "have the name of the launch at their place in the capture "
            f"({counts}); add the capture of the same model, version and batch size"
        )
