"""Groups of ranks: the layout of a job, the order of kernels, and what is exchanged.

A process group is of one kind of parallelism. Its description says which (a `DeviceMesh` of PyTorch
and torchtitan, Megatron), else the operators that run its collectives, else that it only sends and
receives. What none of these says stays unknown. The position of a rank in its group is its
coordinate: its stage in a pipeline, its part of a tensor. Together these are the layout: which
ranks hold the same part of a model, the same stage, or copies of each other.

Libraries that record nothing are matched by order: if all ranks ran the same operations in the same
order, the n-th kernel of one rank is the n-th on the others. If some recorded fewer, their order
has to fit into that of the others at one place only, even with half of it overlapping: layers
repeat, and an order that fits at several places proves nothing. Such a match is inferred, and is
dropped if no clock allows it, or if devices of one host would be further apart than half the time
from one collective to the next: some began later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.clocks import ClockFit, fit_clock
from htagraph.arrays.codes import gather
from htagraph.errors import QueryError
from htagraph.lookup.operator_roofs import call_of
from htagraph.model.arrays import I64, Bools, Texts
from htagraph.model.collective_names import ONE_SIDED, POINT_TO_POINT
from htagraph.model.dag import Dag
from htagraph.model.job_answers import LAYOUT, PROCESS_GROUPS
from htagraph.model.units import human_count, human_duration
from htagraph.operators.call import Call
from htagraph.queries.communication import HOST_RANGE, LIBRARY_KERNEL, launches_of, short_group

AXES = ("replica", "shard", "stage", "expert", "context")
"""The coordinates of a rank: in data, tensor, pipeline, expert and context parallel groups."""

_NAMES = {
    "dp_replicate": "replica",
    "replicate": "replica",
    "dp": "replica",
    "ddp": "replica",
    "data": "replica",
    "dp_shard": "replica",
    "fsdp": "replica",
    "tp": "shard",
    "tensor": "shard",
    "tensor_model": "shard",
    "pp": "stage",
    "pipe": "stage",
    "pipeline": "stage",
    "pipeline_model": "stage",
    "ep": "expert",
    "expert": "expert",
    "expert_model": "expert",
    "cp": "context",
    "context": "context",
    "sequence": "context",
}
"""Axis by the description of a group, without what is common to all. The slowest first."""

_COMMON = re.compile(r"^mesh_|_parallel(_group)?(_gloo)?$|_group(_gloo)?$|:\d+$")

_OPERATORS = {
    "shard": re.compile(
        r"ModelParallelRegion|TensorParallel|VocabParallel|(Row|Column)ParallelLinear"
        r"|^LinearWithGradAccumulation"
    ),
    "replica": re.compile(
        r"^FSDP::|^fsdp::|^FullyShardedDataParallel|AccumulateGrad|^ddp\.reducer"
    ),
}
"""Operators around the collectives of an axis: Megatron's layers, PyTorch's DDP and FSDP."""

_REDUCED = ("all_reduce", "reduce_scatter", "all_gather")
"""Operations that average gradients, or gather and split parameters and activations."""


class ProcessGroup(NamedTuple):
    """A process group as one rank recorded it."""

    name: str
    description: str
    ranks: tuple[int, ...]
    label: str  # As collectives name it
    axis: str = ""  # What operators around its collectives say; empty if they say nothing
    # How many collectives of each operation were recorded on the rank
    operations: tuple[tuple[str, int], ...] = ()


def process_groups(
    dag: Dag, collectives: pd.DataFrame, metadata: Mapping[str, Any], rank: int, world_size: int
) -> tuple[ProcessGroup, ...]:
    """The groups of a rank with others, from the header of its trace and from its collectives.

    Collectives whose group was not recorded are of all ranks, if no other group is known.
    """
    found = {(one.name, one.ranks): one for one in groups_in_header(metadata)}
    found |= {(one.name, one.ranks): one for one in _of_events(dag)}
    own = [one for one in found.values() if rank in one.ranks and len(one.ranks) > 1]
    unnamed = bool((collectives["group"] == "").any())
    if not own and unnamed and world_size > 1:
        own = [ProcessGroup("", "", tuple(range(world_size)), "")]
    codes = dag.events.column("group_name")[collectives["event"].to_numpy(np.int64)]
    names = gather(dag.events.symbols.array, codes.astype(np.int64), "")
    used = collectives.assign(axis=_axes(dag, collectives), name=names)
    by_group = dict(iter(used.groupby(["name", "group"])))
    # Where only ranks are recorded, the first group with these ranks is meant.
    first = {one.label: one for one in reversed(own)}
    keys = [("" if first[one.label] is one else one.name, one.label) for one in own]
    return tuple(
        _with_use(one, by_group.get((one.name, one.label), by_group.get(key)))
        for one, key in zip(own, keys, strict=True)
    )


def _with_use(group: ProcessGroup, used: pd.DataFrame | None) -> ProcessGroup:
    """The group with what its collectives were."""
    if used is None:
        return group
    counts = used["operation"].value_counts().sort_index()
    axes = set(used.loc[used["axis"] != "", "axis"])
    if used["operation"].isin((*POINT_TO_POINT, "send_recv", "barrier")).all():
        axes |= {"stage"} if (used["operation"] != "barrier").any() else set()
    operations = tuple(zip(counts.index.tolist(), counts.tolist(), strict=True))
    return group._replace(axis=axes.pop() if len(axes) == 1 else "", operations=operations)


def _axes(dag: Dag, collectives: pd.DataFrame) -> Texts:
    """The axis that the innermost telling operator around each collective says."""
    out = np.full(len(collectives), "", dtype=object)
    calls = launches_of(dag, collectives["event"].to_numpy(np.int64))
    reduces = collectives["operation"].isin(_REDUCED).to_numpy(dtype=bool)
    for axis, pattern in _OPERATORS.items():
        named = dag.events.searched(pattern)
        out[reduces & (nearest(dag.parent, calls, named) >= 0) & (out == "")] = axis
    return out


def groups_in_header(metadata: Mapping[str, Any]) -> Iterable[ProcessGroup]:
    """Yield the process groups that the header of a trace names."""
    info = metadata.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, Mapping) else None
    for one in config if isinstance(config, list) else []:
        if isinstance(one, Mapping):
            yield _group(*(str(one.get(key, "")) for key in ("pg_name", "pg_desc", "ranks")))


def _of_events(dag: Dag) -> Iterable[ProcessGroup]:
    ranks = dag.events.columns.get("group_ranks")
    if ranks is None:
        return
    texts, names = dag.events.symbols.texts, ("group_name", "group_description", "group_ranks")
    values = [dag.events.column(name)[ranks.event] for name in names]
    for codes in sorted(set(zip(*(column.tolist() for column in values), strict=True))):
        yield _group(*("" if code < 0 else texts[code] for code in codes))


def _group(name: str, description: str, ranks: str) -> ProcessGroup:
    numbers = tuple(sorted({int(one) for one in re.findall(r"(?<!\d)\d{1,9}(?!\d)", ranks)}))
    known = "" if description in ("undefined", "None", "default_pg") else description
    return ProcessGroup(name, known, numbers, short_group(str(list(numbers))))


def _described(description: str) -> str:
    """The description without what is common to all kinds of group."""
    short, before = description.lower(), ""
    while short != before:
        short, before = _COMMON.sub("", short), short
    return short


class Kind(NamedTuple):
    """The axis of a group, the name of its part of the axis, and where that is from."""

    axis: str
    part: str
    source: str


def group_kinds(
    groups: Mapping[int, tuple[ProcessGroup, ...]], experts: Iterable[str], given: str = ""
) -> dict[ProcessGroup, Kind]:
    """The kind of each group of a job whose kind is known.

    `experts`: labels of groups that exchange tokens of experts. `given`: what the user says:
    ``NAME=AXIS``, separated by commas. NAME is that of a group, or its description.
    """
    said = dict(_given(given))
    exchanging = set(experts)
    found = {}
    for one in dict.fromkeys(group for several in groups.values() for group in several):
        described = _described(one.description)
        override = said.get(one.name, said.get(one.description, ""))
        if override:
            found[one] = Kind(override, "", "given")
        elif described in _NAMES:
            found[one] = Kind(_NAMES[described], described, one.description)
        elif one.description:
            continue
        elif one.label in exchanging:
            found[one] = Kind("expert", "", "exchanges tokens of experts")
        elif one.axis:
            how = "only sends and receives" if one.axis == "stage" else "operators around it"
            found[one] = Kind(one.axis, "", how)
    return found


def _given(given: str) -> Iterable[tuple[str, str]]:
    for item in filter(None, (one.strip() for one in given.split(","))):
        name, _, axis = item.partition("=")
        if axis not in AXES:
            raise QueryError(
                f"layout: {item!r} names no axis.",
                hint=f"write NAME=AXIS, with one of {', '.join(AXES)}.",
            )
        yield name, axis


def layout_frame(kinds: Mapping[ProcessGroup, Kind], hosts: Mapping[int, str]) -> pd.DataFrame:
    """One row per rank with its coordinates, `job_answers.LAYOUT`.

    A replica may have two parts: copies of sets of ranks that share parameters among them.
    """
    order = {name: place for place, name in enumerate(_NAMES)}
    ranks = list(hosts)
    columns: dict[str, Any] = {"rank": ranks, "host": list(hosts.values())}
    sources: dict[int, list[str]] = {rank: [] for rank in ranks}
    for axis in AXES:
        by_part = {
            part: _places(kinds, axis, part)
            for part in dict.fromkeys(kind.part for kind in kinds.values() if kind.axis == axis)
        }
        whole = [name for name in by_part if name in ("dp", "ddp", "data")]
        chosen = whole[:1] or sorted(by_part, key=lambda name: order.get(name, -1))
        column = []
        for rank in ranks:
            mine = [by_part[name][rank] for name in chosen if rank in by_part[name]]
            sizes = [size for _, size, _ in mine]
            places = (place * prod(sizes[at + 1 :]) for at, (place, _, _) in enumerate(mine))
            column.append(sum(places) if mine else -1)
            sources[rank] += [f"{axis}: {' and '.join(one for *_, one in mine)}"] if mine else []
        columns[axis] = column
    columns["source"] = ["; ".join(sources[rank]) for rank in ranks]
    return LAYOUT.frame(columns)


def _places(
    kinds: Mapping[ProcessGroup, Kind], axis: str, part: str
) -> dict[int, tuple[int, int, str]]:
    """Place of each rank in its group, the size of that, and what tells its axis.

    Stages may meet in pairs, which are one pipeline. Else a rank is in one group of each kind: of
    several, its place is unknown.
    """
    sources = {
        group.ranks: kind.source for group, kind in kinds.items() if kind[:2] == (axis, part)
    }
    if axis == "stage":
        sources = _chained(sources)
    n_groups = Counter(rank for ranks in sources for rank in ranks)
    return {
        rank: (place, len(ranks), source)
        for ranks, source in sources.items()
        for place, rank in enumerate(ranks)
        if n_groups[rank] == 1
    }


def _chained(sources: Mapping[tuple[int, ...], str]) -> dict[tuple[int, ...], str]:
    """The groups, those that share ranks as one."""
    of: dict[int, set[int]] = {}
    for ranks in sources:
        joined = set(ranks).union(*(of[rank] for rank in ranks if rank in of))
        of.update(dict.fromkeys(joined, joined))
    said = {min(of[ranks[0]]): source for ranks, source in sources.items()}
    return {tuple(sorted(one)): said[min(one)] for one in of.values()}


def groups_frame(
    groups: Mapping[int, tuple[ProcessGroup, ...]], kinds: Mapping[ProcessGroup, Kind]
) -> pd.DataFrame:
    """One row per process group, `job_answers.PROCESS_GROUPS`."""
    # Ranks record different numbers of collectives: the first one that recorded most counts.
    by_group: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    for several in groups.values():
        for one in several:
            best = by_group.setdefault((one.name, one.ranks), one)
            if sum(n for _, n in one.operations) > sum(n for _, n in best.operations):
                by_group[one.name, one.ranks] = one
    found = sorted(by_group.values(), key=lambda one: (one.ranks, one.name))
    strides = [set(np.diff(one.ranks).tolist()) for one in found]
    none = Kind("", "", "")
    return PROCESS_GROUPS.frame(
        {
            "group": [one.label for one in found],
            "name": [one.name for one in found],
            "description": [one.description for one in found],
            "axis": [kinds.get(one, none).axis for one in found],
            "source": [kinds.get(one, none).source for one in found],
            "n_ranks": [len(one.ranks) for one in found],
            "stride": [steps.pop() if len(steps) == 1 else -1 for steps in strides],
            "n_collectives": [sum(n for _, n in one.operations) for one in found],
            "operations": [", ".join(name for name, _ in one.operations) for one in found],
        }
    )


INFERRED_RULES = ("inferred order", "inferred run")
"""Rules that match by the order of kernels: all of it, or the one place where it fits."""

_STATED_RANKS = re.compile(r" of (\d{1,9}) ranks ")
_TIMES = ("arrived_ns", "end_ns")


def stated_ranks(group: str) -> int:
    """How many ranks the group of a library's kernels has, 0 if their names do not state it."""
    found = _STATED_RANKS.search(group)
    return int(found[1]) if found else 0


def is_inferred(table: pd.DataFrame) -> Bools:
    """Which collectives are known only by the names of their kernels."""
    return (table["found_by"] == LIBRARY_KERNEL).to_numpy(dtype=bool)


def ends_together(table: pd.DataFrame) -> Bools:
    """Which collectives all members leave together; others only bound the clocks."""
    one_sided: Bools = is_inferred(table) & table["operation"].isin(ONE_SIDED).to_numpy(dtype=bool)
    return ~one_sided


def in_kernel_order(table: pd.DataFrame) -> tuple[I64, str]:
    """Place of each collective of a group in the order of all ranks, and the rule; or why none.

    `table`: collectives of at least two ranks, by rank, each in the order of launches. Place -1 is
    not matched; the rule is one of `INFERRED_RULES`, or why nothing is matched, in words.
    """
    code, _ = pd.factorize(table["operation"])
    ranks, counts = np.unique(table["rank"].to_numpy(np.int64), return_counts=True)
    stated = stated_ranks(str(table["group"].iloc[0]))
    nowhere = np.full(len(table), -1, dtype=np.int64)
    if stated and stated < len(ranks):
        n = human_count(len(ranks), "rank")
        return nowhere, f"{n} ran them, in groups that are not recorded"
    texts = ["".join(map(chr, part + 1)) for part in np.split(code, np.cumsum(counts)[:-1])]
    longest = max(texts, key=len)
    places = [longest.find(text) for text in texts]
    place = np.concatenate(
        [at + np.arange(len(text)) for at, text in zip(places, texts, strict=True)]
    )
    if all(text == longest for text in texts):
        return place, INFERRED_RULES[0]
    if min(places) < 0 or any(_fits_again(text, longest) for text in set(texts)):
        few, many = int(counts.min()), int(counts.max())
        ran = f"ranks ran {few:,} to {many:,} of them" if few < many else "ranks ran them"
        how = "in different orders" if min(places) < 0 else "and their order fits at several places"
        return nowhere, f"{ran}, {how}"
    return place, INFERRED_RULES[1]


def _fits_again(text: str, longest: str) -> bool:
    """Whether at least half of an order fits into the longest at several places."""
    half = (len(text) + 1) // 2
    fits = (
        longest[max(at, 0) : at + len(text)] == text[max(-at, 0) : len(longest) - at]
        for at in range(half - len(text), len(longest) - half + 1)
    )
    return len(text) < len(longest) and sum(fits) > 1


def contradicted(
    inferred: pd.DataFrame, certain: pd.DataFrame, hosts: Mapping[int, str] | None = None
) -> str:
    """Why a match by the order of kernels cannot be right, in words; empty if it can.

    `inferred` are members of one group, `certain` those of any group that metadata match.
    """
    first, *others = (int(rank) for rank in np.unique(inferred["rank"]))
    limit_ns = _usual_distance_ns(inferred[inferred["rank"] == first]) // 2
    for rank in others:
        pairs = _pairs(inferred, first, rank)
        if not _has_clock(pairs, _pairs(certain, first, rank)):
            return "no clock allows that they are the same in order"
        one_host = bool(hosts and hosts.get(rank) and hosts.get(rank) == hosts.get(first))
        fit = _fit(pairs)
        apart_ns = max(fit.low_ns, -fit.high_ns, 0)
        if one_host and apart_ns > limit_ns:
            apart = human_duration(apart_ns)
            return f"in order, devices of one host would be {apart} apart, so some began later"
    return ""


def _usual_distance_ns(members: pd.DataFrame) -> int:
    """The median time of a rank from a collective to the next one of the same operation."""
    ordered = members.sort_values("arrived_ns", kind="stable")
    distances = ordered.groupby("operation")["arrived_ns"].diff().groupby(ordered["operation"])
    usual = distances.median().dropna()
    return int(usual.min()) if len(usual) else np.iinfo(np.int64).max


def _pairs(matched: pd.DataFrame, first: int, second: int) -> pd.DataFrame:
    """The collectives in which two ranks wait for each other."""
    columns = ["match", *_TIMES, "together"]
    both = matched[matched["is_rendezvous"] & ~matched["is_partial"]]
    both = both.assign(together=ends_together(both))
    one, other = (both.loc[both["rank"] == rank, columns] for rank in (first, second))
    return one.merge(other.drop(columns="together"), on="match", suffixes=("", "_other"))


def _has_clock(inferred: pd.DataFrame, certain: pd.DataFrame) -> bool:
    """Whether one clock fits all collectives of two ranks, or none fits even the certain ones."""
    if _fit(pd.concat([inferred, certain])).width_ns >= 0:
        return True
    return len(certain) > 0 and _fit(certain).width_ns < 0 <= _fit(inferred).width_ns


def _fit(pairs: pd.DataFrame) -> ClockFit:
    """The clock of the second of two ranks against the first, by their collectives."""
    columns = [pairs[name + side].to_numpy(np.int64) for side in ("_other", "") for name in _TIMES]
    return fit_clock(*columns, ends_together=pairs["together"].to_numpy(dtype=bool))


_CALL = re.compile(r"^c10d::(send|recv_)$")
_THIRD = re.compile(r'^\[\s*""\s*,\s*""\s*,\s*"(\d{1,9})"')
"""Inputs of a send or receive as written: tensors and group have no value, then the peer."""


def _of_ranks(label: str, groups: set[tuple[int, ...]]) -> str:
    """The label of a library's kernels with the ranks of the one group that they can be of."""
    stated = stated_ranks(label)
    fits = [group for group in groups if not stated or len(group) == stated]
    return f"{label} {short_group(str(list(fits[0])))}" if len(fits) == 1 else label


def recorded_peers(dag: Dag, collectives: pd.DataFrame) -> I64:
    """Peers of sends and receives on the host, as places in their group; -1 if not recorded.

    They are the third input of the operator (``record_shapes=True``).
    """
    events, event = dag.events, collectives["event"].to_numpy(np.int64)
    calls = events.searched(_CALL)
    above = dag.parent[event].astype(np.int64)
    call = np.where(calls[event], event, np.where(gather(calls, above, default=False), above, -1))
    values = gather(events.column("arg_values"), call)
    peers = [
        int(found[1]) if code >= 0 and (found := _THIRD.match(events.lists.texts[code])) else -1
        for code in values.tolist()
    ]
    return np.array(peers, dtype=np.int64)


def in_process_groups(
    collectives: pd.DataFrame, metadata: Mapping[str, Any], rank: int, place: I64
) -> pd.DataFrame:
    """Collectives of a rank, with groups for those on the host and of libraries.

    A host range does not record its group. If all groups of the rank have the same members, it is
    that group; of two members, each sends to the other, and else to the `place` in it that is
    recorded. If not, the group is unknown, and no rank counts as waiting in it. Without groups in
    the header, all collectives are of one group. Nor does a kernel of a library. Its group is the
    only one with as many ranks as its name states, or the only one at all if it states none.
    """
    on_host = (collectives["found_by"] == HOST_RANGE).to_numpy(dtype=bool)
    by_library = is_inferred(collectives)
    named = groups_in_header(metadata) if (on_host | by_library).any() else ()
    groups = {one.ranks for one in named if rank in one.ranks and len(one.ranks) > 1}
    if groups and by_library.any():
        labels = {label: _of_ranks(label, groups) for label in collectives["group"][by_library]}
        own = collectives["group"].map(labels)
        collectives = collectives.assign(group=collectives["group"].mask(by_library, own))
    if not groups or not on_host.any():
        return collectives
    if len(groups) > 1:
        return collectives.assign(is_rendezvous=collectives["is_rendezvous"] & ~on_host)
    members = next(iter(groups))
    label = np.where(on_host, short_group(str(list(members))), collectives["group"])
    peer = collectives["peer"].to_numpy(np.int64)
    if len(members) == 2:
        paired = on_host & collectives["operation"].isin(POINT_TO_POINT).to_numpy(dtype=bool)
        peer = np.where(paired & (peer < 0), sum(members) - rank, peer)
    else:
        known = on_host & (place >= 0) & (place < len(members)) & (peer < 0)
        peer = np.where(known, np.array(members)[np.clip(place, 0, len(members) - 1)], peer)
    n_ranks = np.where(
        on_host & ~collectives["operation"].isin(POINT_TO_POINT).to_numpy(dtype=bool),
        len(members),
        collectives["n_ranks"],
    )
    return collectives.assign(group=label.astype(object), peer=peer, n_ranks=n_ranks)


_OUTPUT_SPLITS, _INPUT_SPLITS = 3, 4
"""Positions of the split sizes among the arguments of ``c10d::alltoall_base_``."""


_FLOATS = re.compile("Half|BFloat16|Float|Double")
"""Element types of activations, as metadata have them: tokens, not their numbers."""


class Exchange(NamedTuple):
    """What a rank sends and receives in an all-to-all."""

    event: int  # Event of the collective
    # n_sent, n_received: rows, or elements where `row_bytes` is that of an element
    n_sent: int
    n_received: int
    row_bytes: int
    counts_rows: bool  # Rows were recorded, so they are tokens; else elements were
    is_split: bool  # Sizes for each peer were given, as they differ from call to call


def exchanges_of(dag: Dag, collectives: pd.DataFrame) -> pd.DataFrame:
    """The all-to-alls of a rank whose sizes in both directions were recorded: `Exchange` as rows.

    From the split sizes of the operator above, with ``record_shapes``, else from NCCL's metadata.
    All-to-alls of integers, such as numbers of tokens, are left out.
    """
    chosen = (collectives["operation"] == "all_to_all").to_numpy(dtype=bool)
    events = collectives["event"].to_numpy(np.int64)[chosen]
    named = dag.events.searched(r"^c10d::alltoall")
    above = nearest(dag.parent, launches_of(dag, events), named).tolist()
    calls = [call_of(dag, operator) if operator >= 0 else None for operator in above]
    metadata = [dag.events.column(name)[events].tolist() for name in ("msg_in", "msg_out")]
    rest = (collectives[name][chosen].tolist() for name in ("n_bytes", "dtype"))
    found = (
        _of_call(event, call) if call is not None else _of_metadata(event, *one)
        for event, call, *one in zip(events.tolist(), calls, *metadata, *rest, strict=True)
    )
    frame = pd.DataFrame([one for one in found if one], columns=[*Exchange._fields])
    flags = ("counts_rows", "is_split")
    return frame.astype({name: "bool" if name in flags else "int64" for name in frame})


def _of_metadata(event: int, n_in: int, n_out: int, n_bytes: int, dtype: str) -> Exchange | None:
    """The exchange that NCCL's metadata have; None without sizes, and for integers."""
    if n_in <= 0 or n_out < 0 or n_bytes <= 0 or not _FLOATS.search(dtype):
        return None
    return Exchange(event, n_in, n_out, n_bytes // n_in, counts_rows=False, is_split=False)


def _of_call(event: int, call: Call) -> Exchange | None:
    """The exchange of an operator with an output and an input; None for lists, and for integers."""
    tensors = call.tensors
    if len(tensors) != 2 or not all(one.dims for one in tensors):
        return None
    output, source = tensors
    if not source.dtype.startswith(("fp", "bf")):
        return None
    sent, received = call.integers(_INPUT_SPLITS), call.integers(_OUTPUT_SPLITS)
    widest = max(tensors, key=lambda one: one.n)
    return Exchange(
        event,
        sum(sent) if sent else source.dims[0],
        sum(received) if received else output.dims[0],
        widest.n_bytes[1] // max(widest.dims[0], 1),
        counts_rows=True,
        is_split=bool(sent and received),
    )
