"""Layout: which ranks hold the same part of a model, the same stage, or copies of each other.

A process group is of one kind of parallelism. Its description says which (a `DeviceMesh` of PyTorch
and torchtitan, Megatron), else the operators that run its collectives, else that it only sends and
receives. What none of these says stays unknown. The position of a rank in its group is its
coordinate: its stage in a pipeline, its part of a tensor.
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
from htagraph.arrays.codes import gather
from htagraph.errors import QueryError
from htagraph.model.arrays import Texts
from htagraph.model.collective_names import POINT_TO_POINT
from htagraph.model.dag import Dag
from htagraph.model.job_answers import LAYOUT, PROCESS_GROUPS
from htagraph.queries.communication import launches_of, short_group

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
        named = dag.events.named(dag.events.symbols.searched(pattern))
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
