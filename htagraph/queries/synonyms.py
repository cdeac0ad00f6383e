"""What people call things: the words for which a question, or a verb, has the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from htagraph.errors import closest

_WORD = re.compile(r"[a-z0-9]+")
_MOST = 3
"""Targets that a hint names: chosen, the first is the nearest."""

VERBS_OF_ANSWERS = {
    "report": "verdict",
    "path": "path",
    "why": "why",
    "query": "query",
    "sql": "sql",
    "what-if": "what_if",
    "diff": "diff",
    "hang": "hang",
}
"""Verbs of the command line that answer what is no question, with their tools for agents."""

SYNONYMS = {
    "1f1b, gpipe, micro batch, microbatch, schedule, zero bubble": "pipeline_schedule, pipeline",
    "a100, h100, mi300, peak, tensor core, tflops, flop, arithmetic intensity": "roofline, mfu",
    "aten, op, operator, slow op": "operator_breakdown, cost by=op",
    "allocation, allocator, fragmentation, leak, memory, oom, out of memory": "memory_timeline",
    "all gather, all reduce, all to all, allgather, allreduce, collective, gloo, nccl, rccl, "
    "reduce scatter": "collectives, bandwidths, exposed_communication",
    "annotation, nvtx, range, record function": "annotation_breakdown",
    "backward, forward, optimizer, phase": "kernel_breakdown by=phase",
    "bandwidth, bus bandwidth, busbw, algbw, gb s": "bandwidths, collectives",
    "baseline, before, change, changed, compare, difference, regression, slower": "diff",
    "blocked, launch queue, queue": "queue_blocked, counters",
    "bottleneck, bound, cause, figure, page, plot, problem, reason, slow, verdict, why": "report",
    "bubble, pipeline": "pipeline_bubbles, pipeline_savings",
    "clock skew, clock sync, alignment": "clocks",
    "call stack, call tree, flame, flame graph, stack, tree": "functions, operator_tree",
    "code, file, function, line, method, py spy, python": "functions",
    "communication, comm, exposed, hidden": "exposed_communication, overlap",
    "confidence, trust, missing, reliable": "quality, damage",
    "copy, copies, d2h, dtoh, h2d, htod, memcpy, pcie, transfer": "class_overlap, "
    "kernel_breakdown by=name",
    "corrupt, dropped, lost, truncated": "damage",
    "counter, cupti, hardware counter, ncu, nsight compute": "cupti_rates, cupti_counters",
    "critical path": "path",
    "cuda graph, graph, hip graph": "graph_nodes",
    "data loader, data loading, dataloader, wait for data, input": "cost by=bound, idle_time",
    "data parallel, dp, fsdp, group, layout, parallelism, pp, process group, tensor parallel, "
    "topology, tp": "layout, process_groups",
    "dcgm, nvidia smi, power, temperature": "sampled_counters, device_activity",
    "deadlock, hang, stuck, timeout": "hang",
    "expert, moe, router, token": "experts",
    "fuse, fusion, pattern, sequence": "kernel_patterns",
    "gap, gpu idle, idle, starved, underutilized": "idle_time, idle_intervals",
    "gpu busy, gpu util, gpu utilization, occupancy, sm, util": "utilization, device_activity",
    "host, node, machine": "stragglers by=host, delay_costs by=host",
    "imbalance, late, late rank, lateness, skew, slow rank, straggler": "stragglers, delay_costs",
    "improve, item, optimize, save, speedup, sync, synchronize, what if": "what-if",
    "iteration, step, throughput": "step_times, steady_state",
    "kernel, slow kernel, top kernel, triton": "kernel_breakdown by=name, roofline by=kernel",
    "kernel launch, launch, launch overhead": "launch_stats",
    "chain, cypher, find, follow, follows, match, select": "query",
    "layer, module, nn module": "kernel_breakdown by=module, roofline by=module",
    "model flop, mfu, hfu": "mfu",
    "overhead, profiler": "profiler_overhead, launch_stats",
    "shape, size": "kernel_breakdown by=shape, roofline by=shape",
    "database, duckdb, join, table": "sql",
    "stage": "pipeline_savings, pipeline",
    "stream": "kernel_breakdown by=stream, idle_time per=stream",
    "wait": "idle_time, stragglers",
}
"""By words, with commas between them: questions with their options, or verbs; the nearest first. Of
several words that were asked, the entry with most of them counts first. Hints of the command line,
of agents and of Python come from here. test_words checks all targets.
"""


class Target(NamedTuple):
    """A question with options, or a verb if there is no such question."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str) -> Target:
        """Target as the table writes it."""
        name, *options = text.split()
        pairs = (option.partition("=") for option in options)
        return cls(name, tuple((key, value) for key, _, value in pairs))

    @property
    def is_verb(self) -> bool:
        """Whether it is a verb of its own."""
        return self.name in VERBS_OF_ANSWERS

    def command(self, where: str) -> str:
        """The command that answers."""
        asked = [] if self.is_verb else ["ask"]
        options = chain.from_iterable(("-o", f"{key}={value}") for key, value in self.options)
        return " ".join(["htagraph", *asked, self.name, where, *options])

    def call(self) -> str:
        """The call of a tool that answers an agent."""
        if self.is_verb:
            return VERBS_OF_ANSWERS[self.name]
        return f"ask question={self.name!r}" + (
            f" options={dict(self.options)}" * bool(self.options)
        )


def _words(text: str) -> frozenset[str]:
    """The words of a text, in the singular."""
    found = _WORD.findall(text.lower())
    return frozenset(
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
        for word in found
    )


def targets_of(asked: str, known: Iterable[str]) -> list[Target]:
    """What to ask instead of something that is no question; empty if nothing is near.

    `asked`: a word, or some. `known`: names of questions, for what was only mistyped.
    """
    words = _words(asked)
    rows = [(_words(key), row) for keys, row in SYNONYMS.items() for key in keys.split(", ")]
    hits = sorted((row for row in rows if row[0] <= words), key=lambda row: -len(row[0]))
    texts = dict.fromkeys(text for _, row in hits for text in row.split(", "))
    if not texts:
        texts = dict.fromkeys(filter(None, [closest(asked, known)]))
    return [Target.of(text) for text in texts][:_MOST]
