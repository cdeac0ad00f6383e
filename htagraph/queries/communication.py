"""Collectives of one rank, and communication: what of it is exposed, and why; overlap of classes.

Kernels whose launch was not captured are left out: not every rank has recorded them. The operation
of a kernel is in its metadata, else in that of the operator above its launch, else in the
annotation ``nccl:…`` above its launch, else in its name. Only an annotation tells whether a
``SendRecv`` kernel is an all-to-all or a send. Host backends (gloo) have no kernels: the collective
is the range of the worker, launched by the operator that handed it off.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from htagraph.arrays.binding import walks_back
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import Cover, sum_by_code, union
from htagraph.lookup.attribution import names_or_empty, op_names
from htagraph.lookup.collectives import (
    bus_factors,
    collective_sizes,
    first_anchor,
    given_ranges,
    host_collectives,
    library_collectives,
)
from htagraph.lookup.queues import CLASSES, device_states, devices_of, runs
from htagraph.lookup.windowed import device_work
from htagraph.model.answers import CLASS_OVERLAP, COLLECTIVES, EXPOSED_COMMUNICATION, OVERLAP
from htagraph.model.arrays import I64, Bools, Texts
from htagraph.model.collective_names import (
    FROM_ROOT,
    HOST_CALLER,
    NCCL_ANNOTATION,
    NCCL_KERNEL,
    POINT_TO_POINT,
    RENDEZVOUS,
    TO_ROOT,
    operation_of,
)
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind, KernelClass
from htagraph.model.schema import categorical
from htagraph.model.window import Window

HOST_RANGE = "host range"
"""Source of the operation of a collective that the host runs."""

LIBRARY_KERNEL = "library kernel"
"""Source of the operation of a collective whose library records nothing: it is inferred."""

_FOUND_BY = (
    *("kernel metadata", "operator metadata", "annotation", "kernel name"),
    *(HOST_RANGE, LIBRARY_KERNEL),
)
_KERNEL_NAME, _HOST_RANGE, _LIBRARY_KERNEL = map(
    _FOUND_BY.index, ("kernel name", HOST_RANGE, LIBRARY_KERNEL)
)
_LONG_GROUP = 64
"""Most characters of a list of ranks that is not shortened: one line of a table. A limit of the
screen."""
_POINT_TO_POINT = re.compile(r"(?<!\d)(\d{1,9})\s{0,9}(->|<-)\s{0,9}(\d{1,9})(?!\d)")


def _with_callers(dag: Dag, ranges: I64) -> Dag:
    """The graph with the caller of each host range as its launch.

    This is the operator that handed it to a worker, else the parent, else the range itself.
    """
    launch = dag.launch.copy()
    launch[ranges] = np.where(dag.parent[ranges] >= 0, dag.parent[ranges], ranges)
    given, calls = given_ranges(dag, ranges)
    launch[given] = calls
    return replace(dag, launch=launch)


def _column_above(dag: Dag, kernels: I64, name: str) -> I64:
    """Value of a column for each kernel, else for the nearest host event above, else -1."""
    values = dag.events.column(name).astype(np.int64)
    out = values[kernels]
    current = np.where(out == -1, dag.launch[kernels], -1).astype(np.int64)
    while (rows := np.flatnonzero(current >= 0)).size:
        out[rows] = values[current[rows]]
        current[rows] = np.where(out[rows] == -1, dag.parent[current[rows]], -1)
    return out


def _annotation_above(dag: Dag, kernels: I64) -> I64:
    """Nearest ``nccl:…`` range above the launch of each kernel, -1 for none."""
    named = dag.events.named(dag.events.symbols.searched(NCCL_ANNOTATION))
    current = dag.launch[kernels].astype(np.int64)
    while (rows := np.flatnonzero(~gather(named, current, default=True))).size:
        current[rows] = dag.parent[current[rows]]
    return current


def _operations(dag: Dag, kernels: I64, is_range: Bools) -> tuple[Texts, I64]:
    """Operation of each kernel or host range, and the position of its source in `_FOUND_BY`."""
    events = dag.events
    own = events.column("collective").astype(np.int64)[kernels]
    above = _column_above(dag, kernels, "collective")
    annotation = _annotation_above(dag, kernels)
    gives = events.named(events.symbols.searched(HOST_CALLER))
    sources = (
        gather(events.symbols.array, own, ""),
        gather(events.symbols.array, above, ""),
        names_or_empty(dag, annotation),
        np.where(is_range, "", events.names(kernels)),
        np.where(is_range & gives[dag.launch[kernels]], events.names(dag.launch[kernels]), ""),
        np.where(is_range, events.names(kernels), ""),
    )
    operation = np.full(len(kernels), "", dtype=object)
    found_by = np.where(is_range, _HOST_RANGE, _KERNEL_NAME).astype(np.int64)
    for position, texts in enumerate(sources):
        undecided = operation == ""
        codes, distinct = pd.factorize(texts[undecided])
        of_text = np.array([*map(operation_of, map(str, distinct)), ""], dtype=object)
        operation[undecided] = of_text[codes]
        found_by[undecided & (operation != "")] = min(position, _HOST_RANGE)
    return operation, found_by


def _roots(dag: Dag, kernels: I64, group: Texts) -> I64:
    """Rank of the root, recorded as a position in the group by the operator above; -1 for none."""
    place = _column_above(dag, kernels, "comms_rank")
    codes, distinct = pd.factorize(group)
    members = [_listed(str(text)) for text in distinct]
    roots = [
        members[code][at] if 0 <= at < len(members[code]) else -1
        for code, at in zip(codes, place.tolist(), strict=True)
    ]
    return np.array(roots, dtype=np.int64)


def _peers(dag: Dag, kernels: I64, operation: Texts, group: Texts) -> I64:
    """Peer of sends and receives, root of broadcasts and reductions; -1 if not recorded.

    Recorded in metadata, or in an annotation such as ``nccl:send 0->1``.
    """
    source, target = (_column_above(dag, kernels, name) for name in ("src_rank", "dst_rank"))
    rooted = np.isin(operation, (*FROM_ROOT, *TO_ROOT))
    peer = np.where(operation == "send", target, np.where(operation == "recv", source, -1))
    peer[rooted] = _roots(dag, kernels[rooted], group[rooted])
    annotation = _annotation_above(dag, kernels)
    for row in np.flatnonzero(
        (peer < 0) & np.isin(operation, POINT_TO_POINT) & (annotation >= 0)
    ).tolist():
        text = dag.events.symbols.texts[dag.events.name[annotation[row]]]
        if found := _POINT_TO_POINT.search(text):
            peer[row] = int(found[3])
    return peer


def _n_ranks(dag: Dag, kernels: I64, operation: Texts, group: Texts) -> I64:
    """Ranks that take part in each collective: as recorded, else those that its group lists.

    A list that was cut (``[0, 1, ...]``) does not tell.
    """
    size = _column_above(dag, kernels, "group_size")
    codes, distinct = pd.factorize(group)
    listed = [len(_listed(text)) * (".." not in text) or -1 for text in map(str, distinct)]
    size = np.where(size > 0, size, np.array([*listed, -1], dtype=np.int64)[codes])
    return np.where(np.isin(operation, POINT_TO_POINT), 2, size)


def _listed(group: str) -> list[int]:
    """The ranks that the text of a group lists."""
    return [int(number) for number in re.findall(r"(?<!\d)\d{1,9}(?!\d)", group)]


def short_group(group: str) -> str:
    """Shorter, still unique text for a long list of evenly spaced ranks.

    >>> short_group(str(list(range(0, 1_024, 4))))
    '[0, 4, …, 1020]'
    """
    ranks = _listed(group) if len(group) > _LONG_GROUP else []
    if len(ranks) < 3 or len(set(np.diff(ranks))) > 1:
        return group
    return f"[{ranks[0]}, {ranks[1]}, …, {ranks[-1]}]"


def launches_of(dag: Dag, events: I64) -> I64:
    """What launched each collective, or gave it to a worker: the events of the calls."""
    return _with_callers(dag, host_collectives(dag)).launch[events].astype(np.int64)


def collectives(dag: Dag, window: Window | None = None) -> pd.DataFrame:
    """Collectives of the rank, in the order in which they were launched.

    `window`: only those that overlap it; all by default. Communication kernels whose launch was
    captured, and collectives of the host. Kernels of libraries that record nothing are in a group
    named after the library.
    """
    events, ranges = dag.events, host_collectives(dag)
    dag = _with_callers(dag, ranges) if len(ranges) else dag
    communicates = (dag.classification.kernel_class == KernelClass.COMMUNICATION) & (
        events.kind == EventKind.KERNEL
    )
    kernels = np.concatenate([np.flatnonzero(communicates & (dag.launch >= 0)), ranges])
    kernels = kernels[np.lexsort((events.ts_ns[kernels], events.ts_ns[dag.launch[kernels]]))]
    is_range = np.isin(kernels, ranges)
    operation, found_by = _operations(dag, kernels, is_range)
    of_library, role, arrival, meets = library_collectives(dag, kernels)
    is_library = (of_library != "") & (found_by >= _KERNEL_NAME)
    operation = np.where(is_library, of_library, operation)
    found_by[is_library] = _LIBRARY_KERNEL
    group = gather(events.symbols.array, _column_above(dag, kernels, "group_ranks"), "")
    group_name = gather(events.symbols.array, _column_above(dag, kernels, "group_name"), "")
    is_nccl = events.named(events.symbols.searched(NCCL_KERNEL))[kernels]
    label = np.where(np.isin(group, ("", "[]")), group_name, group)
    codes, distinct = pd.factorize(label)
    label = np.array([short_group(str(text)) for text in distinct] + [""], dtype=object)[codes]
    label = np.where(is_library, role, label)
    n_in, n_out = (_column_above(dag, kernels, name) for name in ("msg_in", "msg_out"))
    dtype = gather(events.symbols.array, _column_above(dag, kernels, "dtype"), "")
    n_bytes = collective_sizes(dag, kernels, operation, (n_in, n_out, dtype))
    n_ranks = _n_ranks(dag, kernels, operation, group)
    rate = np.where(n_bytes >= 0, n_bytes, np.nan) / np.maximum(events.dur_ns[kernels], 1)
    anchor = first_anchor(dag, kernels)[2 * kernels]
    place = np.full(len(events), -1, dtype=np.int64)
    place[kernels] = np.arange(len(kernels))
    frame = COLLECTIVES.frame(
        {
            "collective": np.arange(len(kernels)),
            "event": kernels,
            "operation": operation,
            "group": label,
            "n_elements": n_in,
            "dtype": dtype,
            "n_bytes": n_bytes,
            "n_ranks": n_ranks,
            "least_algbw_gb_per_s": rate,
            "least_busbw_gb_per_s": rate * bus_factors(operation, n_ranks),
            "seq": _column_above(dag, kernels, "seq"),
            "peer": _peers(dag, kernels, operation, group),
            "start_ns": events.ts_ns[kernels],
            "end_ns": events.end_ns[kernels],
            "is_rendezvous": np.where(
                is_library,
                meets,
                np.isin(operation, RENDEZVOUS) & (is_nccl | is_range | (found_by < 2)),
            ),
            "found_by": categorical(found_by, _FOUND_BY),
            "arrival": np.where(is_library, arrival, np.arange(len(kernels))),
            "after": gather(place, anchor >> 1),
        }
    )
    if window is None or window == dag.span:
        return frame
    inside = (frame["start_ns"] < window.end_ns) & (frame["end_ns"] > window.start_ns)
    return frame[inside].reset_index(drop=True)


_WHY = (
    "none",
    "same stream",
    "dependency",
    "GPU synchronization",
    "late launch",
    "nothing else to run",
    "unknown wait",
)
"""Why the next compute kernel did not run while communication was exposed. none: nothing is
exposed. same stream: it is on the stream of the communication. dependency: it waits for an event of
that stream. GPU synchronization: it was launched after the host waited for the communication. late
launch: it was launched after the communication began, for another reason. nothing else to run:
there is none. unknown wait: it was launched in time.
"""


def exposed_communication(dag: Dag, window: Window) -> pd.DataFrame:
    """Communication kernels with the time in which no compute kernel ran, and why.

    The compute kernel that could have hidden it is the first to start on the device after the
    exposed part. If binding edges lead from its start back to the end of the communication kernel,
    it had to wait for that.

    ::

        cpu 1    | [launch >n][launch >g]
        stream 9 |      [nccl <n         ]
        stream 7 |             . exposed  [gemm <g ]

    Here gemm waits for an event of stream 9: a dependency. By time. Exposed time of two concurrent
    kernels counts for both.
    """
    events, kernel_class = dag.events, dag.classification.kernel_class
    work = device_work(dag, window)
    work = work.take(kernel_class[work.event] == KernelClass.COMMUNICATION)
    tracks = events.stream[work.event], events.device[work.event]
    work = work.take(np.lexsort((*tracks, work.end_ns, work.start_ns)))
    exposed = work.dur_ns.copy()
    follower = np.full(len(work.event), -1, dtype=np.int64)
    compute = np.flatnonzero(kernel_class == KernelClass.COMPUTE)
    for device in np.unique(events.device[work.event]).tolist():
        here = np.flatnonzero(events.device[work.event] == device)
        mine = compute[events.device[compute] == device]
        mine = mine[np.lexsort((events.end_ns[mine], events.ts_ns[mine]))]
        busy = union(np.zeros(len(mine), dtype=np.int64), events.ts_ns[mine], events.end_ns[mine])
        cover = Cover(busy.start, busy.end)
        exposed[here] -= cover.within(work.start_ns[here], work.end_ns[here])
        if len(mine):  # the first to start once each is exposed
            at = np.searchsorted(events.ts_ns[mine], cover.free_from(work.start_ns[here]))
            follower[here] = np.where(at < len(mine), mine[np.minimum(at, len(mine) - 1)], -1)
    why = np.where(exposed > 0, _why(dag, work.event, follower), 0)
    follower = np.where(exposed > 0, follower, -1)
    return EXPOSED_COMMUNICATION.frame(
        {
            "event": work.event,
            "name": events.names(work.event),
            "op": op_names(dag, work.event),
            "device": events.device[work.event],
            "stream": events.stream[work.event],
            "start_ns": work.start_ns,
            "dur_ns": work.dur_ns,
            "exposed_ns": exposed,
            "why": categorical(why, _WHY),
            "next_event": follower,
            "next_name": names_or_empty(dag, follower),
        }
    )


def _why(dag: Dag, communication: I64, follower: I64) -> I64:
    """Position in `_WHY` for each communication kernel and the compute kernel that follows it."""
    events, edges = dag.events, dag.edges
    why = np.full(len(communication), _WHY.index("unknown wait"), dtype=np.int64)
    why[follower < 0] = _WHY.index("nothing else to run")
    known = np.flatnonzero(follower >= 0)
    first, later = communication[known], follower[known]
    launch = dag.launch[later]
    is_late = (launch >= 0) & (events.ts_ns[launch] > events.ts_ns[first])
    times = events.node_ts_ns
    walk, edge, _ = walks_back(2 * later, events.ts_ns[first], dag.binding, edges.tail, times)
    passes = edges.tail[edge] >> 1 == first[walk]
    kind, into_device = edges.kind[edge], events.is_device[edges.head[edge] >> 1]
    same_stream = (events.stream[first] == events.stream[later]) & ~is_late

    def any_edge(wanted: Bools) -> Bools:
        return np.bincount(walk[wanted], minlength=len(known)) > 0

    reasons = {
        "same stream": same_stream | any_edge(passes & (kind == EdgeKind.STREAM)),
        "dependency": any_edge(passes & into_device & (kind == EdgeKind.SYNC)),
        "GPU synchronization": any_edge(passes & ~into_device),
        "late launch": is_late,
    }
    why[known] = np.select(
        list(reasons.values()), [_WHY.index(name) for name in reasons], _WHY.index("unknown wait")
    )
    return why


def overlap(dag: Dag, window: Window) -> pd.DataFrame:
    """Time in which each device computes, communicates, or does both.

    One row per device that has work in the trace.
    """
    devices, found = devices_of(dag), device_states(dag, window)
    code = np.searchsorted(devices, found.group)
    computes = runs(found, KernelClass.COMPUTE)
    communicates = runs(found, KernelClass.COMMUNICATION)
    compute, communication, both = (
        sum_by_code(code[rows], found.dur[rows], len(devices))
        for rows in (computes, communicates, computes & communicates)
    )
    share = np.full(len(devices), np.nan)
    np.divide(both, communication, out=share, where=communication > 0)
    return OVERLAP.frame(
        {
            "device": devices,
            "compute_ns": compute,
            "communication_ns": communication,
            "overlap_ns": both,
            "exposed_ns": communication - both,
            "overlap_share": share,
        }
    )


def class_overlap(dag: Dag, window: Window) -> pd.DataFrame:
    """Time of each device by the set of classes that run concurrently; it adds up to the window.

    ::

        stream 7 |[gemm  ]
        stream 9 |    [nccl  ]          compute 4, compute + communication 4, communication 4

    Largest first within a device.
    """
    found = device_states(dag, window)
    n_masks, devices = 1 << (len(CLASSES) + 1), devices_of(dag)
    # A dense table, since devices and masks are few.
    code = np.searchsorted(devices, found.group) * n_masks + found.mask
    time = sum_by_code(code, found.dur, len(devices) * n_masks)
    device, mask = np.divmod(np.flatnonzero(time), n_masks)
    time = time[time > 0]
    order = np.lexsort((mask, -time, device))
    classes = ([one.label for one in CLASSES if bits >> int(one) & 1] for bits in range(n_masks))
    names = np.array([" + ".join(labels) or "idle" for labels in classes], dtype=object)
    return CLASS_OVERLAP.frame(
        {
            "device": devices[device[order]],
            "classes": names[mask[order]],
            "dur_ns": time[order],
            "share": time[order] / max(window.dur_ns, 1),
        }
    )
