"""Whether work comes from compiled code, or from a captured graph."""

from __future__ import annotations

import re

import numpy as np

from htagraph.lookup.clipping import device_work, host_work
from htagraph.lookup.selecting import under_mask
from htagraph.model.api_calls import CAPTURE_BEGINS, GRAPH_LAUNCH
from htagraph.model.arrays import Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import HOST_KINDS, EventKind, among
from htagraph.model.window import Window

_COMPILED = re.compile(r"^Torch-Compiled Region|CompiledFxGraph|^CompiledFunction")
"""Ranges of code that torch.compile generated."""
_GENERATED = re.compile(r"^triton_(poi|red|per|tem|mm|for|spl)_")
"""Kernels that torch.compile generated."""
_COMPILES = re.compile(r"\(dynamo_timed\)$|^dynamo$")
"""Ranges in which torch.compile itself runs."""
_HAS_GRAPHS = re.compile(r"^(cuda|hip|cu)[A-Z]")
"""Calls of a device whose launches can be captured."""
_MOST = 0.5
"""More than half is most: test_compiled_work draws a little more and a little less."""


def graph_launches(dag: Dag) -> Bools:
    """Whether each event is a call that launches a captured graph."""
    return _named(dag, GRAPH_LAUNCH)


def compiled_share(dag: Dag, window: Window) -> float:
    """Share of a window's device time that comes from code that torch.compile generated.

    Without device work, of the time of operators. A captured graph with some generated kernels was
    captured from compiled code.

    Examples
    --------
    >>> import htagraph as hg
    >>> events = hg.synth.timeline('''
    ...     cpu 1    |[region [launch >a]][aten::mm [launch >b]   ]
    ...     stream 7 |                    [k1 <a]     [k2 <b           ]
    ... ''', names={"region": "Torch-Compiled Region: 0/1"})
    >>> graph = hg.Trace.from_events(events).compile()
    >>> compiled_share(graph.dag, graph.interval)
    0.28
    """
    tops = _named(dag, _COMPILED)
    wrote = dag.events.named(dag.events.symbols.searched(_GENERATED)) & dag.events.is_device
    if not tops.any() and not wrote.any():
        return 0.0
    work = device_work(dag, window)
    if len(work.event):
        within = under_mask(dag, tops)
        replayed = under_mask(dag, graph_launches(dag))
        if (wrote & replayed)[work.event].any():
            within |= replayed
        dur_ns = work.dur_ns
        return float(dur_ns[(within | wrote)[work.event]].sum() / max(dur_ns.sum(), 1))
    # The own time of operators; those that run while torch.compile traces compute nothing.
    compiles = _named(dag, _COMPILES)
    computes = dag.events.kind == EventKind.OP
    computes &= ~compiles & ~under_mask(dag, compiles)
    found = host_work(dag, window)
    found = found.take(computes[found.event])
    own_ns = np.zeros(len(dag.events), dtype=np.int64)
    own_ns[found.event] = found.dur_ns
    parent = dag.parent[found.event]
    np.subtract.at(own_ns, parent[parent >= 0], found.dur_ns[parent >= 0])
    own_ns = np.where(computes, np.maximum(own_ns, 0), 0)
    return float(own_ns[tops | under_mask(dag, tops)].sum() / max(own_ns.sum(), 1))


def is_replayed(dag: Dag, window: Window) -> bool:
    """Whether most device time of a window comes from captured graphs."""
    tops = graph_launches(dag)
    if not tops.any():
        return False
    work = device_work(dag, window)
    replayed_ns = work.dur_ns[under_mask(dag, tops)[work.event]].sum()
    return bool(replayed_ns > _MOST * work.dur_ns.sum())


def can_capture(dag: Dag, window: Window) -> bool:
    """Whether launches of CUDA or HIP could be captured as a graph.

    Not if most device time is of captured graphs already, or if the trace captures one.
    """
    calls = np.zeros(len(dag.events), dtype=bool)
    calls[dag.launch[dag.launch >= 0]] = True
    launches = (calls & _named(dag, _HAS_GRAPHS)).any()
    captures = _named(dag, CAPTURE_BEGINS).any()
    return bool(launches and not captures and not is_replayed(dag, window))


def _named(dag: Dag, pattern: re.Pattern[str]) -> Bools:
    """Whether each event is a host event with such a name."""
    named: Bools = dag.events.named(dag.events.symbols.searched(pattern))
    return named & among(dag.events.kind, HOST_KINDS)
