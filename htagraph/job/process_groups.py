"""Process groups of collectives on the host and of libraries: only the trace's header has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.job.library_matching import is_inferred, stated_ranks
from htagraph.model.arrays import I64
from htagraph.model.collective_operations import POINT_TO_POINT
from htagraph.model.dag import Dag
from htagraph.queries.collectives import HOST_RANGE, short_group

_CALL = re.compile(r"^c10d::(send|recv_)$")
_THIRD = re.compile(r'^\[\s*""\s*,\s*""\s*,\s*"(\d{1,9})"')
"""Inputs of a send or receive as written: tensors and group have no value, then the peer."""


def _groups_of(metadata: Mapping[str, Any], rank: int) -> set[tuple[int, ...]]:
    """Ranks of each process group that a rank shares with others."""
    info = metadata.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, Mapping) else None
    groups = set()
    for group in config if isinstance(config, list) else []:
        ranks = (
            re.findall(r"[0-9]{1,9}", str(group.get("ranks"))) if isinstance(group, Mapping) else []
        )
        groups.add(tuple(sorted({int(number) for number in ranks})))
    return {group for group in groups if rank in group and len(group) > 1}


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
    collectives: pd.DataFrame, metadata: Mapping[str, Any], rank: int, place: I64 | None = None
) -> pd.DataFrame:
    """Collectives of a rank, with groups for those on the host and of libraries.

    A host range does not record its group. If all groups of the rank have the same members, it is
    that group; of two members, each sends to the other, and else to the `place` in it that is
    recorded. If not, the group is unknown, and no rank
    counts as waiting in it. Without groups in the header, all collectives are of one group.

    Nor does a kernel of a library. Its group is the only one with as many ranks as its name states,
    or the only one at all if it states none.
    """
    on_host = (collectives["found_by"] == HOST_RANGE).to_numpy(dtype=bool)
    by_library = is_inferred(collectives)
    groups = _groups_of(metadata, rank) if (on_host | by_library).any() else set()
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
    elif place is not None:
        known = on_host & (place >= 0) & (place < len(members)) & (peer < 0)
        peer = np.where(known, np.array(members)[np.clip(place, 0, len(members) - 1)], peer)
    n_ranks = np.where(
        on_host & ~collectives["operation"].isin(POINT_TO_POINT).to_numpy(dtype=bool),
        len(members),
        collectives["n_ranks"],
    )
    return collectives.assign(group=label.astype(object), peer=peer, n_ranks=n_ranks)
