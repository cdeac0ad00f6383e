"""What recorded a trace, where it loads data, its user ranges, its compiled code, and its graphs.

Each piece of the device work of a captured graph is a node, the same in every replay. The profiler
may record the id of the node. Otherwise its position in its stream identifies it, and replays with
the same work at the same positions are replays of one graph.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import gather
from htagraph.lookup.attribution import host_of, loads_data
from htagraph.lookup.selecting import under_mask
from htagraph.lookup.steps import step_events
from htagraph.lookup.windowed import device_work, host_work
from htagraph.model.api_calls import CAPTURE_BEGINS, GRAPH_LAUNCH
from htagraph.model.arrays import I32, I64, Bools, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import HOST_KINDS, EventKind, among
from htagraph.model.names import STEP_MARKERS
from htagraph.model.window import Window

Loading = Literal["", "in process", "by workers", "after workers", "pinned by a thread"]

_LOADER = re.compile(r"_(SingleProcess|MultiProcessing)DataLoaderIter")
_WORKERS = re.compile(r"_MultiProcessingDataLoaderIter")
_PINS = re.compile(r"^aten::pin_memory$")
_MOST = 0.5
"""More than half is most: test_phases draws a little more and a little less of each."""


def batches(dag: Dag) -> I64:
    """Outermost host ranges that load data, by thread and time."""
    events = dag.events
    loads = events.is_host & events.named(loads_data(dag))
    outer = np.flatnonzero(loads & ~under_mask(dag, loads))
    found: I64 = outer[np.lexsort((events.ts_ns[outer], events.lane[outer]))]
    return found


def n_batches(dag: Dag, window: Window) -> int:
    """Batches that are loaded in a window, by the thread that loads most."""
    events, loaded = dag.events, batches(dag)
    inside = (events.ts_ns[loaded] < window.end_ns) & (events.end_ns[loaded] > window.start_ns)
    return int(np.bincount(events.lane[loaded[inside]], minlength=1).max())


def find_loading(dag: Dag) -> Loading:
    """Where most of the time of DataLoaders goes.

    "in process": the step makes batches itself. "by workers": the step waits for workers. "after
    workers": operators in the step, after the workers. "pinned by a thread": pinning takes most of
    that time. "": there is no DataLoader.
    """
    events = dag.events
    loads = events.searched(_LOADER) & events.is_host
    loads &= ~under_mask(dag, loads)
    by_workers = loads & events.searched(_WORKERS)
    all_ns, workers_ns = (int(events.dur_ns[rows].sum()) for rows in (loads, by_workers))
    if workers_ns <= _MOST * all_ns:
        return "in process" if all_ns else ""
    inside = (events.kind == EventKind.OP) & (dag.parent >= 0)
    inside[inside] = by_workers[dag.parent[inside]]
    if events.dur_ns[inside].sum() > _MOST * workers_ns:
        return "after workers"
    pins = events.searched(_PINS) & events.is_host
    pins &= ~np.isin(events.lane, events.lane[by_workers])
    return "pinned by a thread" if events.dur_ns[pins].sum() > _MOST * workers_ns else "by workers"


NO_DEVICE_WORK = (
    "a trace of functions, not of PyTorch: it has threads, functions and their critical path, but "
    "no device work and no launches, so no kernels and no idle time."
)

_OF_PYTORCH = ("cpu_op", "Operator")
_NAMES_OF_PYTORCH = re.compile(
    r"\b(aten|c10|c10d|at::native|autograd::engine)::|^ProfilerStep\b|torch"
)


def is_plain(events: EventTable) -> bool:
    """Whether a trace has host slices, but no operator of PyTorch, no API call, no device work."""
    of_host = events.kind == EventKind.OP
    if not of_host.any() or (events.is_device | (events.kind == EventKind.RUNTIME)).any():
        return False
    categories = [events.symbols.texts[code] for code in np.unique(events.category[of_host])]
    return not set(categories) & set(_OF_PYTORCH)


def is_pytorch(events: EventTable) -> bool:
    """Whether a trace has names or categories of PyTorch."""
    symbols = events.symbols
    known = any(symbols.code(category) >= 0 for category in _OF_PYTORCH)
    return known or bool(symbols.searched(_NAMES_OF_PYTORCH).any())


WITHIN = " > "
"""Joins the names of nested ranges, the outermost first."""

_NOT_USERS = re.compile(
    "|".join(marker.pattern for marker in STEP_MARKERS.values())
    + r"|::|^(Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)|DistributedDataParallel\b"
    r"|FullyShardedDataParallel\b|(nccl|gloo|mpi|ucc|xccl|c10d|PP):|(Forward|Backward) \d+$"
    r"|record_param_comms"
    r"|PyTorch Profiler|Torch-Compiled Region|(## Call )?Compiled(Fx|Function|Autograd)"
    r"|Pregraph bytecode|TorchDynamo )|\bcompile_id=|\(dynamo_timed\)$"
)
"""Names of steps, and of ranges that PyTorch and its libraries make. Found in 150 traces of public
repositories.
"""


def is_users_range(dag: Dag) -> Bools:
    """Whether each event is a host range that the program named."""
    events = dag.events
    is_users: Bools = (events.kind == EventKind.ANNOTATION) & ~events.searched(_NOT_USERS)
    is_users[step_events(events)[0]] = False
    return is_users


def user_ranges(dag: Dag, event: Rows) -> tuple[I32, Texts]:
    """Nested user ranges around each event, itself included: a code, and the text of each code.

    The text is ``train > validation``, empty outside. Device events belong to where they were
    launched.
    """
    events, symbols = dag.events, dag.events.symbols
    is_users = is_users_range(dag)
    rows = np.flatnonzero(is_users)
    texts, code = [""], np.zeros(len(events), dtype=np.int32)
    if not len(rows):
        return np.zeros(len(event), dtype=np.int32), np.array(texts, dtype=object)
    above = nearest(dag.parent, dag.parent[rows].astype(np.int64), is_users)
    level = np.flatnonzero(above < 0)
    while len(level):
        around = gather(code, above[level], 0).astype(np.int64)
        key = around * len(symbols) + events.name[rows[level]]
        unique, which = np.unique(key, return_inverse=True)
        code[rows[level]] = len(texts) + which
        texts += [
            WITHIN.join(filter(None, (texts[outer], symbols.texts[name])))
            for outer, name in np.stack(np.divmod(unique, len(symbols))).T.tolist()
        ]
        done = np.zeros(len(events) + 1, dtype=bool)
        done[rows[level]] = True
        level = np.flatnonzero(done[above])
    innermost = nearest(dag.parent, host_of(dag, event), is_users)
    return gather(code, innermost, 0), np.array(texts, dtype=object)


_COMPILED = re.compile(r"^Torch-Compiled Region|CompiledFxGraph|^CompiledFunction")
"""Ranges of code that torch.compile generated."""
_GENERATED = re.compile(r"^triton_(poi|red|per|tem|mm|for|spl)_")
"""Kernels that torch.compile generated."""
_COMPILES = re.compile(r"\(dynamo_timed\)$|^dynamo$")
"""Ranges in which torch.compile itself runs."""
_HAS_GRAPHS = re.compile(r"^(cuda|hip|cu)[A-Z]")
"""Calls of a device whose launches can be captured."""
_COMPILED_WORK_MOST = 0.5
"""More than half is most: test_phases draws a little more and a little less."""


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
    wrote = dag.events.searched(_GENERATED) & dag.events.is_device
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
    return bool(replayed_ns > _COMPILED_WORK_MOST * work.dur_ns.sum())


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
    named: Bools = dag.events.searched(pattern)
    return named & among(dag.events.kind, HOST_KINDS)


class GraphNodes(NamedTuple):
    """Replayed device work by graph, replay and start."""

    event: I64
    graph: I64  # Number of the graph, in order of first replays
    replay: I64  # Number of the replay in the trace, in order of time
    node: I64  # Number of the node in its graph, in order of first starts
    is_recorded: Bools  # Whether the profiler recorded the node's id


def graph_nodes(dag: Dag) -> GraphNodes:
    """Nodes of CUDA graphs in a trace, with all their replays."""
    events = dag.events
    node_id = events.column("graph_node").astype(np.int64)
    launched = (dag.launch >= 0) & graph_launches(dag)[dag.launch]
    rows = np.flatnonzero(events.is_device & (launched | (node_id > 0)))
    # A graph launch from before the profile has a correlation id, but no call.
    launch = dag.launch[rows].astype(np.int64)
    call = np.where(launch >= 0, launch, len(events) + 1 + events.correlation[rows])
    alphabet = np.argsort(np.argsort(events.symbols.array, kind="stable"), kind="stable")
    work = pd.DataFrame(
        {
            "event": rows,
            "call": call,
            "ts_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
            "name": alphabet[events.name[rows]] if len(rows) else rows,
            "device": events.device[rows].astype(np.int64),
            "stream": events.stream[rows],
            "graph_id": events.column("graph_id")[rows].astype(np.int64),
            "node_id": np.maximum(node_id[rows], 0),
        }
    )
    begin = work.groupby("call")["ts_ns"].transform("min")
    order = ["begin", "call", "ts_ns", "name", "dur_ns", "device", "stream"]
    work = work.assign(begin=begin).sort_values(order, kind="stable", ignore_index=True)
    work["replay"] = work.groupby("call", sort=False).ngroup()
    work["place"] = _places(work)
    work["graph"] = _graphs(work)
    work = work.sort_values("graph", kind="stable", ignore_index=True)
    node = work.groupby(["graph", "place"], sort=False).ngroup()
    first = node.groupby(work["graph"]).transform("min")
    return GraphNodes(
        event=work["event"].to_numpy(np.int64),
        graph=work["graph"].to_numpy(np.int64),
        replay=work["replay"].to_numpy(np.int64),
        node=(node - first).to_numpy(np.int64),
        is_recorded=(work["node_id"] > 0).to_numpy(bool),
    )


def _places(work: pd.DataFrame) -> pd.Series[int]:
    """A number for each place in a graph: the node's id, else its position in its stream."""
    is_known = work["node_id"] > 0
    position = work.groupby(["replay", "device", "stream"], sort=False).cumcount()
    parts = (work["device"], work["stream"], work["name"], position)
    keys = [part.where(~is_known, -1) for part in parts]
    return work.groupby([work["node_id"], *keys], sort=False).ngroup()


def _graphs(work: pd.DataFrame) -> pd.Series[int]:
    """Number of the graph of each piece of work: by its recorded id, else by all of its places."""
    of_replay = work.groupby("replay", sort=True)
    graph_id = of_replay["graph_id"].max().to_numpy(np.int64)
    is_known = (graph_id > 0) & (of_replay["node_id"].min().to_numpy() > 0)
    n_work = of_replay.size().to_numpy(np.int64)
    ordered = work.sort_values(["replay", "place"], kind="stable")
    places = ordered["place"].to_numpy(np.int64)
    begins = np.cumsum(n_work) - n_work
    same = np.zeros(len(n_work), dtype=np.int64)
    for length in np.unique(n_work).tolist():
        alike = np.flatnonzero(n_work == length)
        listed = places[begins[alike][:, None] + np.arange(length)]
        _, code = np.unique(listed, axis=0, return_inverse=True)
        same[alike] = code.reshape(-1)
    keys = pd.DataFrame(
        {
            "id": np.where(is_known, graph_id, -1),
            "length": np.where(is_known, -1, n_work),
            "same": np.where(is_known, -1, same),
        }
    )
    graph = keys.groupby(["id", "length", "same"], sort=False).ngroup()
    return work["replay"].map(graph)
