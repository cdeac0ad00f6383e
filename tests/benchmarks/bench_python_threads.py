"""Precision and recall of what Python threads wait for, on programs that note who ended each wait.

``python -m tests.benchmarks.bench_python_threads [--programs 140] [--seed 0] [--without-c]
[--python python3.13]`` traces random programs of ``threaded_program.py`` with viztracer, some of
each kind, and prints tables in Markdown: edges by rule and by kind of program, with two levels of
chance, and the waits that were found. ``--without-c`` traces no functions of C; ``--python`` names
another interpreter that has viztracer.

An edge is right if it comes from the thread whose release, or end, ended the wait. A wait that
nobody ended, or whose lock was free, has no right edge. A wait counts for recall if a thread ended
it while it lasted, and it took 50 us.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

import htagraph as hg
from htagraph.explain.critical_path import path_edges
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule
from htagraph.reports.markdown import markdown_table

PROGRAM = Path(__file__).with_name("threaded_program.py")
KINDS = ("pipeline", "pairs", "locks", "conditions", "events", "pool", "time_limits")
RULES = (Rule.LOCK_RELEASED, Rule.THREAD_STARTED)
NOTING = re.compile(
    r"(note|(R?Lock|SimpleQueue|Thread)\.\w+|<lambda>) \(.*threaded_program\.py|builtins\.next$"
)
"""What the program calls only to note: it is taken out, as no other program has it."""
COUNTS_FROM_NS = 50_000
NOBODY = -1

I64 = npt.NDArray[np.int64]


def traced(kind: str, seed: int, folder: Path, python: str, options: list[str]) -> Dag:
    """The graph of one program, which runs here."""
    out = folder / "run.json"
    command = [python, "-m", "viztracer", "--quiet", *options, "-o", str(out)]
    subprocess.run([*command, str(PROGRAM), kind, str(seed)], check=True, capture_output=True)
    run = json.loads(out.read_bytes())
    run["traceEvents"] = [event for event in run["traceEvents"] if not NOTING.match(event["name"])]
    return hg.load(json.dumps(run).encode()).compile().dag


def truth(dag: Dag) -> tuple[pd.DataFrame, dict[int, int]]:
    """Who ended each wait, from what the program noted, and who started each thread.

    Waits have ``lane``, ``begin_ns``, ``end_ns`` and ``by``: a lane, or `NOBODY` where the lock was
    free or time was up.
    """
    events = dag.events
    notes = np.flatnonzero(events.kind == EventKind.INSTANT)
    notes = notes[np.argsort(events.ts_ns[notes], kind="stable")]
    lanes = events.lane[notes].tolist()
    times, texts = events.ts_ns[notes].tolist(), events.names()[notes].tolist()
    lane_of = {int(tid): lane for lane, tid in enumerate(events.lanes.tid)}
    ends = {lane: int(events.end_ns[events.lane == lane].max()) for lane in set(lanes)}
    released, waiting, starters = {}, {}, {}
    waits = []
    for lane, time_ns, text in zip(lanes, times, texts, strict=True):
        last = int(number) if (number := text.rpartition(" ")[2]).isdecimal() else 0
        if text.startswith("release "):
            released[last] = (lane, time_ns)
        elif text.startswith("started by "):
            starters[lane] = lane_of[last]
        elif text == "waits":
            waiting.setdefault(lane, []).append(time_ns)
        elif text.startswith("woken by "):
            begin_ns = waiting[lane].pop()
            by, at_ns = released.get(last, (NOBODY, 0))
            if text.startswith("woken by end of ") and last in lane_of:
                by = lane_of[last]
                at_ns = ends[by]
            by = by if at_ns > begin_ns and by != lane else NOBODY
            waits.append((lane, begin_ns, time_ns, by))
    return pd.DataFrame(waits, columns=["lane", "begin_ns", "end_ns", "by"]), starters


def judged(dag: Dag) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Edges with whether they are right and what chance would say, and waits with their edge."""
    waits, starters = truth(dag)
    edges, events = dag.edges, dag.events
    on_path = path_edges(dag, dag.span)
    lane_of = events.lane[edges.tail >> 1]
    found = np.zeros(len(waits), dtype=bool)
    rows = []
    for edge in np.flatnonzero(np.isin(edges.rule, np.array(RULES, dtype=np.int8))).tolist():
        rule, head, said = Rule(int(edges.rule[edge])), int(edges.head[edge]), int(lane_of[edge])
        lane, end_ns = int(events.lane[head >> 1]), int(events.node_ts_ns[head])
        if rule is Rule.THREAD_STARTED:
            begin_ns, by = end_ns, starters.get(lane, NOBODY)
        else:
            begin_ns = int(events.ts_ns[edges.event[edge]])
            overlap = np.minimum(waits["end_ns"], end_ns) - np.maximum(waits["begin_ns"], begin_ns)
            own = overlap.where(waits["lane"] == lane, -1)
            wait = int(own.argmax())
            by = int(waits["by"].iloc[wait]) if own[wait] >= 0 else NOBODY
            found[wait] |= said == by
        active, last = others(dag, lane, begin_ns, end_ns)
        rows.append(
            {
                "rule": rule.label, "is_right": said == by, "is_on_path": edge in on_path,
                "at_random": 1 / len(active) if by in active else 0.0, "last_event": last == by,
            }
        )  # fmt: skip
    counts = (waits["by"] != NOBODY) & (waits["end_ns"] - waits["begin_ns"] >= COUNTS_FROM_NS)
    return pd.DataFrame(rows), waits.assign(is_found=found)[counts]


def others(dag: Dag, lane: int, begin_ns: int, end_ns: int) -> tuple[set[int], int]:
    """Threads that did something during a wait, and the one that did something last before."""
    events = dag.events
    ops = (events.kind == EventKind.OP) & (events.lane != lane) & (events.ts_ns <= end_ns)
    active = set(events.lane[ops & (events.end_ns >= begin_ns)].tolist())
    of = np.flatnonzero(ops)
    if not len(of):
        return active, NOBODY
    done_ns = events.end_ns[of]
    last_ns = np.where(done_ns <= end_ns, done_ns, events.ts_ns[of])
    return active, int(events.lane[of[last_ns.argmax()]])


def share(of: pd.Series) -> str:
    """A mean in percent, or nothing of nothing."""
    return f"{100 * of.mean():.2f}%" if len(of) else "-"


def edge_table(edges: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per rule, or kind of program: edges, right ones, and chance."""
    rows = []
    for name, own in edges.groupby(by, sort=False):
        path = own[own["is_on_path"]]
        rows.append(
            {
                by: name, "edges": len(own), "right": share(own["is_right"]),
                "on the path": len(path), "right there": share(path["is_right"]),
                "a thread at random": share(own["at_random"]),
                "who did something last": share(own["last_event"]),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=140)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-c", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    options = ["--ignore_c_function"] if given.without_c else []
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.programs):
            kind, seed = KINDS[number % len(KINDS)], given.seed + number // len(KINDS)
            dag = traced(kind, seed, Path(folder), given.python, options)
            parts.append([frame.assign(program=kind) for frame in judged(dag)])
    edges, waits = (pd.concat(frames, ignore_index=True) for frames in zip(*parts, strict=True))
    locks = edges[edges["rule"] == Rule.LOCK_RELEASED.label]
    recall = waits.groupby("program", sort=False)["is_found"].agg(waits="size", found=share)
    print(markdown_table(edge_table(edges, "rule")))
    print(markdown_table(edge_table(locks, "program").merge(recall.reset_index(), how="outer")))
    print(f"\n{len(waits):,} waits, {share(waits['is_found'])} found")


if __name__ == "__main__":
    main()
