"""What recordings say of groups: those in a header, the order of kernels, and what is exchanged.

Libraries that record nothing are matched by order: if all ranks ran the same operations in the same
order, the n-th kernel of one rank is the n-th on the others. If some recorded fewer, their order
has to fit into that of the others at one place only, even with half of it overlapping: layers
repeat, and an order that fits at several places proves nothing. Such a match is inferred, and is
dropped if no clock allows it, or if devices of one host would be further apart than half the time
from one collective to the next: some began later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.clocks import ClockFit, fit_clock
from htagraph.arrays.codes import gather
from htagraph.job.layout import groups_in_header
from htagraph.lookup.operator_roofs import call_of
from htagraph.model.arrays import I64, Bools
from htagraph.model.collective_names import ONE_SIDED, POINT_TO_POINT
from htagraph.model.dag import Dag
from htagraph.model.units import human_count, human_duration
from htagraph.operators.call import Call
from htagraph.queries.communication import HOST_RANGE, LIBRARY_KERNEL, launches_of, short_group

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
    found: Bools = (table["found_by"] == LIBRARY_KERNEL).to_numpy(dtype=bool)
    return found


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
    calls = events.named(events.symbols.searched(_CALL))
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
    named = dag.events.named(dag.events.symbols.searched(r"^c10d::alltoall"))
    above = nearest(dag.parent, launches_of(dag, events), named).tolist()
    calls = [call_of(dag, operator) if operator >= 0 else None for operator in above]
    metadata = [dag.events.column(name)[events].tolist() for name in ("msg_in", "msg_out")]
    rest = (collectives[name][chosen].tolist() for name in ("n_bytes", "dtype"))
    found = (
        _of_call(event, call) if call is not None else _of_metadata(event, *one)
        for event, call, *one in zip(events.tolist(), calls, *metadata, *rest, strict=True)
    )
    return _frame([one for one in found if one is not None])


def _frame(found: list[Exchange]) -> pd.DataFrame:
    columns = zip(*found, strict=True) if found else [()] * len(Exchange._fields)
    types = (np.int64, np.int64, np.int64, np.int64, np.bool_, np.bool_)
    return pd.DataFrame(
        {
            name: np.array(values, dtype=kind)
            for name, values, kind in zip(Exchange._fields, columns, types, strict=True)
        }
    )


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
