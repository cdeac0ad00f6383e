"""What each inference rule earns: every answer again with that rule off.

``python -m tests.ablation [FOLDER …]`` compiles each trace of some folders once with all rules, and
once more without each rule that made an edge there. ``--programs 390`` does so with simulated
programs (`tests.synth.mechanisms`), ``--truth`` runs the tests of what was planted in real captures
without each rule that made an edge in one. Each prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.arrays.by_head import InOrder
from htagraph.compiler import passes
from htagraph.compiler.passes import compile_events
from htagraph.errors import HTAGraphError
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path, path_edges
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable, Inferred
from htagraph.model.events import EventTable
from htagraph.model.kinds import Bound
from htagraph.model.rules import Rule
from tests.answers import sources
from tests.benchmarks.bench_inference import percent, table
from tests.judged_inference import INFERRED, path_time
from tests.public_traces import FOLDER
from tests.real_traces import CAPTURES
from tests.synth.mechanisms import KINDS, inference_program
from tests.synth.simulator import simulate

TRUTH = (
    "tests/findings/test_planted.py",
    "tests/job/test_real_jobs.py",
    "tests/compiler/test_threads_of_captures.py",
)
"""Tests of what was planted in real captures."""


@contextlib.contextmanager
def without(rule: Rule | None) -> Iterator[None]:
    """Compilations without one rule."""
    if rule is None:
        yield
        return
    saved = {name: getattr(passes, name) for name in ("PASSES", "OF_DEVICES", "OF_HOSTS")}
    threads = passes.thread_edges

    def less(edges: EdgeTable) -> EdgeTable:
        return edges.take(edges.rule != rule)

    def edges_of(make: Callable[..., EdgeTable]) -> Callable[..., EdgeTable]:
        def made(*given: object) -> EdgeTable:
            return less(make(*given))

        return made

    def inferred_by(look: Callable[..., Inferred]) -> Callable[..., Inferred]:
        def found(*given: object) -> Inferred:
            made = look(*given)
            return made._replace(edges=less(made.edges))

        return found

    def of_threads(*given: object, infer: bool) -> InOrder:
        order = threads(*given, infer=infer)  # type: ignore[arg-type]
        return order._replace(
            rule=np.where(order.rule == rule, np.int8(Rule.PROGRAM_ORDER), order.rule)
        )

    try:
        passes.PASSES = tuple(map(edges_of, passes.PASSES))  # type: ignore[assignment]
        passes.OF_DEVICES = tuple(map(inferred_by, passes.OF_DEVICES))
        passes.OF_HOSTS = tuple(map(inferred_by, passes.OF_HOSTS))
        passes.thread_edges = of_threads  # type: ignore[assignment]
        yield
    finally:
        for name, value in saved.items():
            setattr(passes, name, value)
        passes.thread_edges = threads


class Told(NamedTuple):
    """What a graph says of its whole window, instant by instant."""

    start_ns: np.ndarray
    cause: np.ndarray
    bound: np.ndarray
    end_ns: int
    n_binding: dict[Rule, int]
    n_on_path: dict[Rule, int]


def told(dag: Dag) -> Told:
    """Causes and bounds along the critical path of a graph, and which inferred edges bind."""
    found = critical_path(dag, dag.span)
    parts = attributed_time(dag, found).sort_values("start_ns", kind="stable")
    start_ns = parts["start_ns"].to_numpy(np.int64)
    binding = dag.edges.rule[dag.binding[dag.binding >= 0]]
    on_path = dag.edges.rule[path_edges(dag, dag.span)]
    of = np.searchsorted(found["start_ns"].to_numpy(np.int64), start_ns, side="right") - 1
    return Told(
        start_ns,
        parts["cause"].astype(str).to_numpy(),
        found["bound"].astype(str).to_numpy()[of],
        dag.span.end_ns,
        {rule: int((binding == rule).sum()) for rule in INFERRED},
        {rule: int((on_path == rule).sum()) for rule in INFERRED},
    )


def changed_ns(before: Told, after: Told, column: str) -> int:
    """Time of a window of which two graphs say other things."""
    cuts = np.unique(np.concatenate([before.start_ns, after.start_ns, [before.end_ns]]))
    first, second = (
        getattr(each, column)[np.searchsorted(each.start_ns, cuts[:-1], side="right") - 1]
        for each in (before, after)
    )
    return int(np.diff(cuts)[first != second].sum())


def unexplained_ns(of: Told) -> int:
    """Time of a path without an explanation."""
    length_ns = np.diff(of.start_ns, append=of.end_ns)
    return int(length_ns[of.bound == Bound.UNKNOWN_WAITS.label].sum())


def tables(folders: list[Path]) -> Iterator[tuple[str, EventTable]]:
    """Events of every trace, and of every rank of an export of Nsight Systems."""
    for folder in folders:
        for source in sources(folder):
            if source.is_dir():
                continue
            try:
                yield str(source.relative_to(folder)), hg.load(source).recording.events
            except HTAGraphError:
                continue


def trace_rows(events: EventTable, name: str) -> Iterator[dict[str, object]]:
    """A row for each rule that makes an edge in a trace."""
    whole = compile_events(events)
    if not len(whole.events) or not whole.span.dur_ns:
        return
    before = told(whole)
    yield {"rule": None, "trace": name, "path_ns": whole.span.dur_ns}
    for rule in INFERRED:
        n_edges = int((whole.edges.rule == rule).sum())
        if not n_edges:
            continue
        with without(rule):
            after = told(compile_events(events))
        yield {
            "rule": rule,
            "trace": name,
            "n_edges": n_edges,
            "n_binding": before.n_binding[rule],
            "n_on_path": before.n_on_path[rule],
            "cause_ns": changed_ns(before, after, "cause"),
            "bound_ns": changed_ns(before, after, "bound"),
            "unexplained_ns": unexplained_ns(after) - unexplained_ns(before),
            "path_ns": whole.span.dur_ns,
        }


def of_traces(folders: list[Path], *, verbose: bool) -> None:
    """Print what the rules do on real traces."""
    rows: list[dict[str, object]] = []
    for name, events in tables(folders):
        found = list(trace_rows(events, name))
        rows += found
        if verbose:
            for row in found[1:]:
                print(*(str(value) for value in row.values()), sep="\t", file=sys.stderr)
    frame = pd.DataFrame(rows)
    whole = frame[frame["rule"].isna()]
    lines: list[list[object]] = []
    for rule in INFERRED:
        own = frame[frame["rule"] == rule]
        moved = own[own["cause_ns"] + own["bound_ns"] > 0]
        shares = moved["cause_ns"] / moved["path_ns"]
        lines.append(
            [
                rule.label,
                len(own),
                f"{int(own['n_binding'].sum()):,}",
                f"{int(own['n_on_path'].sum()):,}",
                len(moved),
                *(f"{own[column].sum() / 1e6:,.1f} ms" for column in ("cause_ns", "bound_ns")),
                f"{own['unexplained_ns'].sum() / 1e6:+,.1f} ms",
                percent(shares.max(), 1) if len(moved) else "-",
            ]
        )
    header = ["rule off", "traces with an edge", "binding edges", "on the path", "traces that move"]
    header += ["cause changes", "bound changes", "unknown_waits", "most of one path"]
    print(table(header, lines))
    print(f"{len(whole)} traces, paths of {whole['path_ns'].sum() / 1e9:,.1f} s in all")


def of_programs(n_programs: int, seed: int) -> None:
    """Print what the rules do on simulated programs, whose causes are known."""
    rows: list[dict[str, object]] = []
    for number in range(n_programs):
        kind = KINDS[number % len(KINDS)]
        rank = simulate(inference_program(kind, seed + number // len(KINDS)))
        whole = compile_events(rank.events)
        right = path_time(whole, rank.truth)
        for rule in INFERRED:
            if not (whole.edges.rule == rule).any():
                continue
            with without(rule):
                other = path_time(compile_events(rank.events), rank.truth)
            rows.append(
                {
                    "rule": rule,
                    "right": (right["right_ns"] - other["right_ns"]) / right["total_ns"],
                    "unknown_waits": (other["unexplained_ns"] - right["unexplained_ns"])
                    / right["total_ns"],
                }
            )
    frame = pd.DataFrame(rows, columns=["rule", "right", "unknown_waits"])
    lines: list[list[object]] = []
    for rule in INFERRED:
        own = frame[frame["rule"] == rule]
        lines.append(
            [
                rule.label,
                len(own),
                f"{100 * own['right'].sum() / n_programs:+.2f}%",
                f"{100 * own['unknown_waits'].sum() / n_programs:+.2f}%",
            ]
        )
    print(
        table(
            ["rule", "programs with an edge", "true bound, by the rule", "unexplained without"],
            lines,
        )
    )


class _Counted:
    """Which tests passed."""

    def __init__(self) -> None:
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def _passed(rule: Rule | None) -> set[str]:
    counted = _Counted()
    with without(rule), contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *TRUTH], plugins=[counted])
    return counted.passed


def of_truth() -> None:
    """Print which tests of planted truth fail without each rule."""
    dags = [compile_events(events) for _, events in tables([CAPTURES])]
    whole, lines = _passed(None), []
    for rule in INFERRED:
        n_captures = sum(bool((dag.edges.rule == rule).any()) for dag in dags)
        lost = whole - _passed(rule) if n_captures else set()
        lines.append([rule.label, n_captures, len(whole), len(lost)])
    print(table(["rule off", "captures with an edge", "right with it", "wrong without"], lines))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[CAPTURES, FOLDER])
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--truth", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    began = time.perf_counter()
    warnings.simplefilter("ignore")
    if given.programs:
        of_programs(given.programs, given.seed)
    elif given.truth:
        of_truth()
    else:
        of_traces(given.folders, verbose=given.verbose)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
