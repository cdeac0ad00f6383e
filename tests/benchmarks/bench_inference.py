"""Precision and recall of every inference rule, on simulated ranks whose causes are known.

``python -m tests.benchmarks.bench_inference [--programs 390] [--seed 0] [--kind NAME]`` compiles
random programs, some of each kind of `tests.synth.mechanisms.KINDS`, and prints four tables in
Markdown: rules, waits, path time, and wrong edges by kind of program. With ``--show 5`` it also
prints that many wrong edges of each rule, and what their heads truly waited for.

An inferred edge counts if it binds. It is right if its head truly waited for the same work or, of
edges between threads, for the same thread. A wait counts if no record names it and it is longer
than a usual launch delay.
"""

from __future__ import annotations

import argparse
import time

import pandas as pd

from htagraph.model.events import EventTable
from htagraph.model.rules import Rule
from tests.judged_inference import INFERRED, UNNAMED, judge
from tests.synth.mechanisms import KINDS, inference_program
from tests.synth.simulator import simulate

_NONE = "-"


def judged(n_programs: int, seed: int, kinds: tuple[str, ...]) -> tuple[pd.DataFrame, ...]:
    """Edges, waits and path time of all programs, with their kind."""
    parts = []
    for number in range(n_programs):
        kind = kinds[number % len(kinds)]
        found = judge(simulate(inference_program(kind, seed + number // len(kinds))))
        label = {"kind": kind, "program": seed + number // len(kinds)}
        parts.append([frame.assign(**label) for frame in (found.edges, found.waits, found.time)])
    return tuple(pd.concat(frames, ignore_index=True) for frames in zip(*parts, strict=True))


def percent(part: float, whole: float) -> str:
    """A share in percent, or nothing of nothing."""
    return f"{100 * part / whole:.2f}%" if whole else _NONE


def table(header: list[str], rows: list[list[object]]) -> str:
    """Rows as a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def rule_table(edges: pd.DataFrame, waits: pd.DataFrame) -> str:
    """One row per inference rule."""
    rows: list[list[object]] = []
    for rule in INFERRED:
        own = edges[edges["rule"] == rule]
        path = own[own["is_on_path"]]
        may_find = [release.value for release, rules in UNNAMED.items() if rule in rules]
        planted = waits[waits["release"].isin(may_find)]
        right, on_path = int(own["is_right"].sum()), int(path["is_right"].sum())
        rows.append(
            [
                rule.label, f"{len(own):,}", percent(right, len(own)), f"{len(path):,}",
                percent(on_path, len(path)), f"{len(planted):,}",
                percent(int((planted["rule"] == rule).sum()), len(planted)),
            ]
        )  # fmt: skip
    header = ["rule", "binding edges", "precision", "on the path", "precision there"]
    return table([*header, "waits it may find", "found by it"], rows)


def wait_table(waits: pd.DataFrame) -> str:
    """One row per kind of wait that no record names."""
    rows: list[list[object]] = []
    for release in UNNAMED:
        planted = waits[waits["release"] == release.value]
        found = planted[planted["rule"] >= 0]
        by = [Rule(int(code)).label for code in found["rule"].value_counts().index]
        rows.append(
            [release.value, f"{len(planted):,}", percent(len(found), len(planted)), ", ".join(by)]
        )
    return table(["wait", "planted", "recall", "found by"], rows)


def time_table(of: pd.DataFrame) -> str:
    """One row per kind of program: path time with the true bound."""
    rows: list[list[object]] = []
    for kind, own in [*of.groupby("kind", sort=False), ("all", of)]:
        cells: list[object] = [kind, own["program"].nunique() if kind != "all" else len(own) // 2]
        for column in ("right_ns", "unexplained_ns"):
            for infer in (False, True):
                part = own[own["infer"] == infer]
                # Each program weighs the same, however long it runs.
                cells.append(f"{100 * (part[column] / part['total_ns']).mean():.2f}%")
        rows.append(cells)
    header = ["program", "n", "true bound, off", "on", "unexplained, off", "on"]
    return table(header, rows)


def wrong_table(edges: pd.DataFrame) -> str:
    """Wrong edges by rule and kind of program, with what their heads truly waited for."""
    wrong = edges[~edges["is_right"].astype(bool)]
    groups = wrong.groupby(["rule", "kind", "release"], dropna=False)
    rows = [
        [
            Rule(int(rule)).label,
            kind,
            release,
            len(own),
            ", ".join(map(str, own["program"].unique()[:5])),
        ]
        for (rule, kind, release), own in groups
    ]
    return table(["wrong edges of", "program", "true wait", "n", "seeds"], rows)


def show_wrong(edges: pd.DataFrame, most: int) -> None:
    """Print some wrong edges of each rule."""
    wrong = edges[~edges["is_right"].astype(bool)]
    for edge in wrong.groupby("rule").head(most).itertuples(index=False):
        events = simulate(inference_program(edge.kind, edge.program)).events

        def said(event: float, *, of: EventTable = events) -> str:
            """An event with its stream and times in us."""
            if not event >= 0:
                return "nothing"
            row, first_ns = int(event), int(of.ts_ns.min())
            begin, end = ((int(t[row]) - first_ns) / 1000 for t in (of.ts_ns, of.end_ns))
            return f"{of.names()[row][:40]} (stream {of.stream[row]}, {begin:,.3f} to {end:,.3f})"

        where = "end" if edge.head & 1 else "start"
        print(f"{Rule(int(edge.rule)).label}, {edge.kind!r} {edge.program}: {where} of")
        print(f"    {said(edge.head >> 1)}\n    said   {said(edge.tail >> 1)}")
        print(f"    truly  {said(edge.source)}: {edge.release}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=390)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--show", type=int, default=0)
    given = parser.parse_args()
    began = time.perf_counter()
    kinds = tuple(given.kind or KINDS)
    edges, waits, path_time = judged(given.programs, given.seed, kinds)
    for text in (
        rule_table(edges, waits),
        wait_table(waits),
        time_table(path_time),
        wrong_table(edges),
    ):
        print(text)
    show_wrong(edges, given.show)
    print(f"{given.programs} programs, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
