"""Time of operators, annotations and functions: by group, as a call tree, and by node.

Of functions, what each costs the critical path, with all that it calls.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.ancestors import depths, nearest, sums_under
from htagraph.arrays.codes import distribution, gather
from htagraph.arrays.intervals import sum_by_code, union
from htagraph.errors import GraphError
from htagraph.explain.self_time import self_time
from htagraph.explain.stacks import Stacks, window_stacks
from htagraph.lookup.attribution import innermost, innermost_at, spelling
from htagraph.lookup.windowed import clipped, device_work, host_work
from htagraph.lookup.work_groups import BY_LAUNCH, named
from htagraph.model.answers import (
    ANNOTATION_BREAKDOWN,
    EXECUTION_NODES,
    FUNCTIONS,
    OPERATOR_BREAKDOWN,
    OPERATOR_TREE,
)
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.names import function_and_place
from htagraph.model.schema import categorical
from htagraph.model.symbols import alphabetical
from htagraph.model.window import Window


def operator_breakdown(dag: Dag, window: Window, *, by: str = "name") -> pd.DataFrame:
    """Operators, API calls and annotations by group, with their host time and device time.

    ::

        cpu 1    | [aten::linear [aten::mm [launch >a]]    ]   its own time is what mm leaves
        stream 7 |                       [gemm <a         ]    under linear, mm and launch

    The operator of gemm is mm. `by`: a ``shape`` is that of the innermost operator's inputs; others
    are the groups of `kernel_breakdown`. A group with events of several kinds has a row for each.
    Most own host time first. If events of a thread overlap without nesting, the one that began last
    is innermost.
    """
    host, work, events = host_work(dag, window), device_work(dag, window), dag.events
    n_kinds = len(EventKind)
    groups = named(dag, host.event) if by == "name" else BY_LAUNCH[by](dag, host.event)
    codes, code = np.unique(groups.code * n_kinds + events.kind[host.event], return_inverse=True)
    n = len(codes)
    of_event = np.full(len(events), -1, dtype=np.int64)
    of_event[host.event] = code
    n_lanes = max(len(events.lanes), 1)
    # The union counts recursive calls once.
    running = union(code * n_lanes + events.lane[host.event], host.start_ns, host.end_ns)
    launch = dag.launch[work.event].astype(np.int64)
    # The launch of work that began before the window may not be in it.
    launch = np.where(gather(of_event, launch) >= 0, launch, -1)
    direct = launch >= 0
    count = np.bincount(launch[direct], minlength=len(events))
    time = sum_by_code(launch[direct], work.dur_ns[direct], len(events))
    owner = innermost(dag, launch, (EventKind.OP, EventKind.ANNOTATION))
    owner = np.where(gather(of_event, owner) >= 0, owner, launch)
    frame = OPERATOR_BREAKDOWN.frame(
        {
            "name": groups.names[codes // n_kinds],
            "kind": categorical(codes % n_kinds, EventKind.labels()),
            "n_calls": np.bincount(code, minlength=n),
            "host_ns": sum_by_code(running.group // n_lanes, running.end - running.start, n),
            "self_ns": sum_by_code(code, self_time(dag, window, host)[host.event], n),
            "n_kernels": sums_under(dag.parent, of_event, count, n),
            "device_ns": sums_under(dag.parent, of_event, time, n),
            "self_device_ns": sum_by_code(of_event[owner[direct]], work.dur_ns[direct], n),
        }
    )
    if int(frame["self_device_ns"].sum()) != int(work.dur_ns[direct].sum()):
        raise GraphError("device time by operator does not add up.")
    return frame.sort_values(
        ["self_ns", "host_ns", "name"], ascending=[False, False, True], ignore_index=True
    )


def operator_tree(dag: Dag, window: Window, *, max_depth: int = 100) -> pd.DataFrame:
    """Call tree: one row per chain of names, with its calls and times.

    `max_depth`: deeper calls are counted with their callers. By level, then by parent, longest
    first: parents are before their children.
    """
    host, work, events = host_work(dag, window), device_work(dag, window), dag.events
    depth = np.zeros(len(events), dtype=np.int64)
    depth[host.event] = depths(dag.parent, host.event)
    time = np.zeros(len(events), dtype=np.int64)
    time[host.event] = host.dur_ns
    node_of = np.full(len(events), -1, dtype=np.int64)
    parents, names, levels, n = [], [], [], 0
    for level in range(1, min(int(depth.max(initial=0)), max_depth + 1) + 1):
        rows = host.event[depth[host.event] == level]
        parent = gather(node_of, dag.parent[rows])
        key = (parent + 1) * max(len(events.symbols), 1) + events.name[rows]
        found, number = np.unique(key, return_inverse=True)
        number, found = _longest_first(dag, found, number, time[rows])
        node_of[rows] = n + number
        above, name = np.divmod(found, max(len(events.symbols), 1))
        parents.append(above - 1)
        names.append(name)
        levels.append(np.full(len(found), level - 1))
        n += len(found)
    none = [np.empty(0, dtype=np.int64)]
    parent, name, deep = (np.concatenate(none + parts) for parts in (parents, names, levels))
    node, own = node_of[host.event], self_time(dag, window, host)[host.event]
    kept = node >= 0
    launch = dag.launch[work.event].astype(np.int64)
    at = gather(node_of, nearest(dag.parent, launch, node_of >= 0))
    n_kernels = np.bincount(at[at >= 0], minlength=n)
    device_ns = sum_by_code(at[at >= 0], work.dur_ns[at >= 0], n)
    for level in range(int(deep.max(initial=0)), 0, -1):
        rows = np.flatnonzero(deep == level)
        np.add.at(n_kernels, parent[rows], n_kernels[rows])
        np.add.at(device_ns, parent[rows], device_ns[rows])
    return OPERATOR_TREE.frame(
        {
            "node": np.arange(n),
            "parent": parent,
            "depth": deep,
            "name": events.symbols.array[name],
            "n_calls": np.bincount(node[kept], minlength=n),
            "host_ns": sum_by_code(node[kept], host.dur_ns[kept], n),
            "self_ns": sum_by_code(node[kept], own[kept], n),
            "n_kernels": n_kernels,
            "device_ns": device_ns,
        }
    )


def _longest_first(dag: Dag, key: I64, number: I64, time: I64) -> tuple[I64, I64]:
    """Numbers and keys of the nodes of a level, reordered by parent, then time, then name."""
    parent, name = np.divmod(key, len(dag.events.symbols))
    order = np.lexsort((spelling(dag)[name], -sum_by_code(number, time, len(key)), parent))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[number], key[order]


def annotation_breakdown(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*", on: str = "host"
) -> pd.DataFrame:
    """Annotated ranges by name, with their device work.

    ::

        cpu 1    | {## forward ##  [launch >a]   }
        stream 7 |                        [gemm <a        ]     of ## forward ##, whenever it runs

    `window`: times are clipped to it. `on`: on the host, device work belongs to the annotations it
    was launched in. On the device, ranges are the profiler's projections (``gpu_user_annotation``),
    which on one stream last from the first to the last work launched in an annotation; work that
    begins in them on that stream belongs to them. Most device time first. ``self_device_ns`` adds
    up, over all annotations, to the device time in any.
    """
    events, work = dag.events, device_work(dag, window)
    kind = EventKind.ANNOTATION if on == "host" else EventKind.DEVICE_ANNOTATION
    every = np.flatnonzero(events.kind == kind)
    if on == "host":
        own, parent = innermost(dag, work.event, (kind,)), dag.parent.astype(np.int64)
    else:
        lane = events.lane[work.event].astype(np.int64)
        own, parent = innermost_at(dag, every, lane, events.ts_ns[work.event])
    inside = own >= 0
    code = np.where(events.kind == kind, events.name, -1).astype(np.int64)
    # Number, time and own time of device work by symbol, from the innermost range of each piece.
    n = int(code.max(initial=-1)) + 1
    count = np.bincount(own[inside], minlength=len(code))
    time = sum_by_code(own[inside], work.dur_ns[inside], len(code))
    self_ns = sum_by_code(code[count > 0], time[count > 0], n)
    if int(self_ns.sum()) != int(work.dur_ns[inside].sum()):
        raise GraphError("device time by innermost annotation does not add up.")
    n_kernels, device_ns = (sums_under(parent, code, sums, n) for sums in (count, time))
    wanted = events.symbols.named(name)[events.name[every]]
    ranges = clipped(dag, every[wanted], window)
    lengths = distribution(events.name[ranges.event].astype(np.int64), ranges.dur_ns)
    names = events.symbols.array[lengths.group]
    rows = np.lexsort((alphabetical(names)[1], -lengths.total, -device_ns[lengths.group]))
    group = lengths.group[rows]
    return ANNOTATION_BREAKDOWN.frame(
        {
            "name": names[rows],
            "n_ranges": lengths.n[rows],
            "sum_ns": lengths.total[rows],
            **{name: values[rows] for name, values in lengths.spread.items()},
            "n_kernels": n_kernels[group],
            "device_ns": device_ns[group],
            "self_device_ns": self_ns[group],
            "device_share": device_ns[group] / max(int(work.dur_ns.sum()), 1),
        }
    )


def execution_nodes(dag: Dag, window: Window) -> pd.DataFrame:
    """Operators and annotations in the window, each with its node of the execution trace.

    By start, then by node. Empty if no execution trace was added.
    """
    events = dag.events
    known = events.columns.get("execution_node")
    rows = clipped(dag, np.empty(0, np.int64) if known is None else known.event, window).event
    node = events.column("execution_node")[rows]
    order = np.lexsort((node, events.ts_ns[rows]))
    rows = rows[order]

    def text(column: str) -> npt.NDArray[Any]:
        codes = events.column(column)[rows]
        return np.array([events.symbols.texts[code] for code in codes.tolist()], dtype=object)

    return EXECUTION_NODES.frame(
        {
            "event": rows,
            "name": events.names(rows),
            "node": node[order],
            "record_function": np.maximum(events.column("record_function")[rows], -1),
            "n_inputs": events.column("tensor_inputs")[rows],
            "n_outputs": events.column("tensor_outputs")[rows],
            "op_schema": text("op_schema"),
            "input_shapes": text("input_shapes"),
            "input_types": text("input_types"),
            "output_shapes": text("output_shapes"),
            "output_types": text("output_types"),
        }
    )


NO_FUNCTION = "(no function)"
"""Function of time that no frame of user code is around."""
EVERYWHERE = 0.9
"""Share of the window from which on a function tells nothing: all runs in it. Chosen. Pinned with
the next two by test_functions."""
_MOST = 0.5
"""More than this share is most of something."""
_N_REMOVED, _LEAST = 5, 0.001
"""Functions whose removal is tried, and the least share of the path of one, by own time. Chosen."""


def functions(dag: Dag, window: Window) -> pd.DataFrame:
    """Functions of user code with their time on the critical path; most own time first.

    ::

        train.py(9): step     [                                     ]
        train.py(4): loss        [                        ]             own: 26, of step: 13
        torch/functional.py        [                   ]                counts to loss
        aten::mm                       [          ]                     and so does this

    Device work counts to the stack of its launch, and time of a thread without frames (autograd)
    to the main thread's stack. Own time adds up to the window. Empty without Python stacks.
    """
    if not (dag.events.kind == EventKind.PYTHON).any():
        return FUNCTIONS.empty()
    return functions_in(window_stacks(dag, window), window)


def functions_in(stacks: Stacks, window: Window) -> pd.DataFrame:
    """The same of stacks of the path of a window."""
    events, none = stacks.dag.events, len(stacks.dag.events.symbols)
    owner = gather(stacks.function, stacks.leaf)
    op = nearest(stacks.parent, stacks.leaf, events.kind[stacks.event] == EventKind.OP)
    is_inside = (op >= 0) & (gather(stacks.function, op) == owner)  # the function calls it
    op = np.where(is_inside, gather(events.name[stacks.event], op), none)
    parts = pd.DataFrame({"owner": owner % (none + 1), "op": op, "dur_ns": stacks.dur_ns})
    parts = parts.groupby(["owner", "op"], as_index=False).sum()
    most = parts.sort_values("dur_ns", kind="stable").drop_duplicates("owner", keep="last")
    mostly, own_ns = np.full(none + 1, none), np.zeros(none + 1, dtype=np.int64)
    mostly[most["owner"]] = most["op"]
    np.add.at(own_ns, parts["owner"], parts["dur_ns"])
    if int(own_ns.sum()) != window.dur_ns:
        raise GraphError("the own time of functions does not add up to the window.")
    inclusive_ns, with_backward_ns = (
        np.append(stacks.inclusive_ns(with_backward=more), own_ns[none]) for more in (False, True)
    )
    code, symbols = np.flatnonzero(with_backward_ns), np.append(events.symbols.array, "")
    frames = symbols[code].tolist()
    names = [function_and_place(frame) if frame else (NO_FUNCTION, "") for frame in frames]
    found = FUNCTIONS.frame(
        {
            "function": [name for name, _ in names],
            "place": [place for _, place in names],
            "own_ns": own_ns[code],
            "own_share": own_ns[code] / max(window.dur_ns, 1),
            "inclusive_ns": inclusive_ns[code],
            "backward_ns": (with_backward_ns - inclusive_ns)[code],
            "mostly": symbols[mostly[code]],
            "frame": frames,
        }
    )
    return found.sort_values(
        ["own_ns", "inclusive_ns", "frame"], ascending=[False, False, True], ignore_index=True
    )


def worth_removing(found: pd.DataFrame) -> list[str]:
    """Frames of the largest functions, and of the deepest one that has half of the path."""
    whole_ns = max(int(found["own_ns"].sum()), 1)
    named = found[(found["frame"] != "") & (found["inclusive_ns"] < EVERYWHERE * whole_ns)]
    large = named[named["own_ns"] >= _LEAST * whole_ns].head(_N_REMOVED)
    half = named[named["inclusive_ns"] >= _MOST * whole_ns].nsmallest(1, "inclusive_ns")
    return list(dict.fromkeys([*large["frame"], *half["frame"]]))
