"""What a notebook prints of an object is short: no walls of numbers."""

from __future__ import annotations

from collections.abc import Iterator

import htagraph as hg
from htagraph.findings.verdict import Verdict

_LINES, _CHARACTERS = 14, 1_500
"""Chosen: what one sees at once. A verdict is a text, of three findings."""


def objects() -> Iterator[tuple[str, object]]:
    """The objects that users hold, and what these consist of."""
    trace = hg.load(hg.demo_trace("dataloader"))
    graph, job = trace.compile(), hg.load_job(hg.demo_trace("job"))
    path, kernels = graph.critical_path(), graph.select(kind="kernel")
    changes = (hg.scale("*gemm*", by=0.5), hg.prefetch(), hg.remove(hg.code("train.py(3): f")))
    held = {
        "trace": trace,
        "graph": graph,
        "path": path,
        "finding": graph.verdict().findings[0],
        "selection": kernels,
        "scenario": hg.what_if(graph, changes[0]),
        "job": job,
        "job path": job.critical_path(),
        "job scenario": hg.what_if(job, hg.equalise()),
        "summary": hg.Summary(trace, graph),
        "job summary": hg.JobSummary(job),
        "graph diff": hg.diff(graph, graph),
        "run diff": hg.diff(*map(hg.run_profile, (graph, graph))),
        "profile": hg.run_profile(graph),
        **{str(change): change for change in changes},
    }
    for name, one in held.items():
        yield name, one
        for part in dir(type(one)):
            kind = type(getattr(type(one), part)).__name__
            if part[0] != "_" and kind in ("property", "cached_property"):
                yield f"{name}.{part}", getattr(one, part)
        for part in getattr(type(one), "__dataclass_fields__", ()):
            yield f"{name}.{part}", getattr(one, part)


def test_reprs_are_short() -> None:
    """Of frames, a head, ten rows and what is not shown; prose in them may fold."""
    long = [
        name
        for name, one in objects()
        if type(one).__module__.startswith("htagraph")
        and not isinstance(one, Verdict | hg.Report)
        and "consequence" not in getattr(one, "columns", ())
        and (repr(one).count("\n") >= _LINES or len(repr(one)) > _CHARACTERS)
    ]

    assert long == []
