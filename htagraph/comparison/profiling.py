"""The profile of a graph: what each of its steps took, by bound, kernel and operator."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.comparison.run_profile import KERNEL_PARTS, OTHER, Part, RunProfile
from htagraph.comparison.samples import Samples, code_places, gap_edges, graph_samples
from htagraph.explain.breakdown import split_by_steps
from htagraph.lookup.damage import damage_of
from htagraph.lookup.done_steps import device_work_began
from htagraph.lookup.operator_roofs import Limit, operator_roofs
from htagraph.lookup.queues import device_states, devices_of, time_by_class
from htagraph.lookup.steps import find_steps, step_at
from htagraph.lookup.work_groups import COMPARED_BY, Groups, named
from htagraph.model.arrays import F64, I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.names import without_step_number
from htagraph.model.recording import damage_in_words
from htagraph.model.window import Window
from htagraph.readers.kineto.header import world_size_of
from htagraph.readers.storage import name_of
from htagraph.run.graph import TraceGraph

_TOP = {"bound": 99, "op": 100, "name": 100, "kernel": 150, "group": 100, "operator": 150}
"""Groups of each part that a profile keeps: all bounds, and what makes a baseline of 0.1 to 0.3 MB.
Chosen, with `_LONGEST_NAME` and `_N_STEPS`. Pinned by test_kinds."""

_LONGEST_NAME = 240
"""Characters of a name that are kept: enough to tell kernels apart."""

_N_STEPS = 200
"""Lengths of steps that are kept; nothing but readers of the JSON uses them."""

_NO_OPERATOR = "(no operator)"
_CALLED = ("kernel", "operator")
"""Parts whose calls tell whether a step does what others do."""


def _named(names: Texts, none: str = _NO_OPERATOR) -> Texts:
    """Names without step numbers, which runs have in common."""
    codes, known = pd.factorize(names)
    shared = [without_step_number(str(name))[:_LONGEST_NAME] or none for name in known]
    return gather(np.array(shared, dtype=object), codes, default=none)


def reduced(
    pieces: pd.DataFrame,
    part: str,
    kind: I64,
    *,
    top: int,
    over: int = 1,
    keeps_steps: bool = False,
) -> list[Part]:
    """The longest groups of a part over the steps of each kind; see `_of_kind`.

    `pieces`: ``row``, the step; ``bound``, ``name``, ``calls``, ``dur_ns``; ``roof_ns`` if known.
    `top` groups are kept; parts are means over `over` devices.
    """
    of_row = kind[pieces["row"].to_numpy()]
    parts = []
    for number in range(int(kind.max()) + 1):
        rows, is_of_kind = np.flatnonzero(kind == number), of_row == number
        found = pieces[is_of_kind]
        found = found.assign(row=np.searchsorted(rows, found["row"].to_numpy()))
        parts += _of_kind(
            found, part, number, len(rows), top=top, over=over, keeps_steps=keeps_steps
        )
    return parts


def _of_kind(
    pieces: pd.DataFrame, part: str, kind: int, n: int, *, top: int, over: int, keeps_steps: bool
) -> list[Part]:
    """The longest groups over the `n` steps of a kind, the longest first; the rest is `OTHER`."""
    groups = pieces.groupby(["bound", "name"], sort=False)["dur_ns"].sum()
    kept = groups.sort_values(ascending=False, kind="stable").index[:top]
    if len(kept) < len(groups):
        is_kept = pd.MultiIndex.from_frame(pieces[["bound", "name"]]).isin(kept)
        pieces = pieces.assign(
            bound=pieces["bound"].where(is_kept, ""), name=pieces["name"].where(is_kept, OTHER)
        )
    by_step = pieces.groupby(["bound", "name", "row"], sort=False)[["calls", "dur_ns"]].sum()
    found = by_step.groupby(["bound", "name"], sort=False)
    total, n_with = found.sum(), found.size().to_numpy()
    mean_ns = total["dur_ns"] / n
    away = by_step["dur_ns"] - found["dur_ns"].transform("sum") / n
    spread = away.pow(2).groupby(["bound", "name"], sort=False).sum().to_numpy()
    spread = spread + (n - n_with) * np.square(mean_ns.to_numpy())
    std_ns = np.sqrt(spread / max(n - 1, 1)) * (n > 1)
    row = by_step.index.get_level_values("row")
    ends = [
        by_step["dur_ns"].where(row == end, 0).groupby(["bound", "name"], sort=False).sum()
        for end in (0, n - 1)
    ]
    least = found["dur_ns"].min().where(n_with == n, 0)
    # Integers stay integers: floats lose nanoseconds after 104 days.
    times = [total["dur_ns"], *ends, least, found["dur_ns"].max()]
    columns = (
        (total["calls"] / n / over).tolist(),
        (std_ns / over).tolist(),
        *(
            [time_ns if over == 1 else round(time_ns / over) for time_ns in one.tolist()]
            for one in times
        ),
    )
    varies = n_with < n
    if part in _CALLED:
        varies |= (found["calls"].min() < found["calls"].max()).to_numpy()
    steps_ns = np.zeros((len(total), n if keeps_steps else 0), dtype=np.int64)
    if keeps_steps:
        steps_ns[found.ngroup().to_numpy(), row.to_numpy()] = by_step["dur_ns"].to_numpy()
    roof_ns = [0] * len(total)
    if "roof_ns" in pieces:
        sums = pieces.groupby(["bound", "name"], sort=False)["roof_ns"].sum()[total.index]
        roof_ns = np.rint(sums.where(np.isfinite(sums), 0)).astype(np.int64).tolist()
    steps = zip(varies.tolist(), steps_ns.tolist(), roof_ns, strict=True)
    parts = [
        Part(
            part, bound, name, kind, calls, total_ns, std, *others,
            varies=some, steps_ns=tuple(each), roof_ns=roof,
        )
        for (bound, name), (some, each, roof), calls, std, total_ns, *others in zip(
            total.index.tolist(), steps, *columns, strict=True
        )
    ]  # fmt: skip
    return sorted(parts, key=lambda row: (row.name == OTHER, -row.total_ns, row.bound, row.name))


def path_parts(segments: pd.DataFrame, samples: Samples, places: Texts) -> list[Part]:
    """The critical path of each sample, by bound, operator and name.

    Segments tile a window with all samples in it, and are cut where steps are done. Host code
    between events is named by its place; `places` has no text for all other segments.
    """
    has_none = pd.isna(places) | (places == "")
    segments = segments.assign(name=segments["name"].where(has_none, places))
    start_ns, dur_ns = (segments[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    pieces = split_by_steps(start_ns, dur_ns, samples.frame)
    pieces = pieces[pieces["row"] >= 0]
    at = pieces["segment"].to_numpy()
    bound = segments["bound"].astype(object).to_numpy()[at]
    parts = []
    for part in ("bound", "op", "name"):
        names = segments[part].astype(object).to_numpy()[at]
        named = pieces.assign(bound=bound, name=_named(names), calls=1)
        keeps_steps = part == "name" and any(kind.varies for kind in samples.kinds)
        parts += reduced(named, part, samples.kind, top=_TOP[part], keeps_steps=keeps_steps)
    return parts


def _sample_at(dag: Dag, steps: pd.DataFrame, rows: I64, time_ns: I64) -> I64:
    """The sample of each time, by host ranges that last until the next step begins; -1 for none."""
    if not len(rows):
        return step_at(steps, time_ns)
    marks = find_steps(dag.events)
    start_ns, dur_ns = (marks[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    place = np.full(len(marks), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    periods = marks.assign(dur_ns=np.append(np.diff(start_ns), dur_ns[-1:]))
    return gather(place, step_at(periods, time_ns), default=-1)


def _by_group(
    dag: Dag, events: I64, row: I64, groups: Groups, none: str = _NO_OPERATOR, **more: F64
) -> pd.DataFrame:
    """Events by sample and by group; `more` are columns to be summed."""
    inside = row >= 0
    values = {"calls": np.ones(len(events), np.int64), "dur_ns": dag.events.dur_ns[events], **more}
    found = pd.DataFrame(
        {"row": row[inside], "code": groups.code[inside]}
        | {name: column[inside] for name, column in values.items()}
    )
    sums = found.groupby(["row", "code"], as_index=False)[list(values)].sum()
    names = groups.names[sums.pop("code").to_numpy(np.int64)]
    return sums.assign(bound="", name=_named(names, none))


def _roofs(dag: Dag, work: I64) -> F64:
    """The least time that the device needs for each piece of work; infinite if unknown."""
    roofs = operator_roofs(dag, work, dag.events.dur_ns[work])
    is_known = roofs.has_peaks & (roofs.limit != Limit.UNKNOWN)
    share = np.where(is_known, roofs.roof_ns / np.maximum(roofs.device_ns, 1), np.inf)
    share = gather(share, roofs.work.call, np.inf)
    return np.asarray(share * np.maximum(dag.events.dur_ns[work], 1))


def _device_parts(dag: Dag, steps: pd.DataFrame, kind: I64) -> list[Part]:
    """States of devices in each step, on average over devices."""
    devices = devices_of(dag)
    start_ns, dur_ns = (steps[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    if not len(devices):
        return []
    last_ns = int((start_ns + dur_ns).max())
    whole = Window(min(int(start_ns[0]), dag.span.start_ns), max(last_ns, dag.span.end_ns), "steps")
    found = device_states(dag, whole)
    times = [
        pd.DataFrame(
            {"row": np.arange(len(steps)), "bound": "", "name": name, "calls": 0, "dur_ns": time_ns}
        )
        for device in devices.tolist()
        for name, time_ns in time_by_class(found, device, start_ns, start_ns + dur_ns).items()
    ]
    pieces = pd.concat(times, ignore_index=True)
    return reduced(pieces, "device", kind, top=len(times), over=len(devices))


def work_parts(dag: Dag, steps: pd.DataFrame, rows: I64, kind: I64) -> list[Part]:
    """Kernels, host operators and device states in each sample of a rank; see `Samples`.

    Work counts in the step that launched it, or in which it began if no launch was recorded. Times
    of host operators include what they call.
    """
    work, began_ns = device_work_began(dag)
    marks = find_steps(dag.events)["event"].to_numpy(np.int64)
    host = np.setdiff1d(np.flatnonzero(dag.events.is_host), marks)
    row = _sample_at(dag, steps, rows, began_ns)
    kernels = _by_group(dag, work, row, named(dag, work))
    roofs = {"shape": {"roof_ns": _roofs(dag, work)}}
    operators = _by_group(
        dag, host, _sample_at(dag, steps, rows, dag.events.ts_ns[host]), named(dag, host)
    )
    return [
        *reduced(kernels, "kernel", kind, top=_TOP["kernel"]),
        *(
            part
            for by, grouped in COMPARED_BY.items()
            for part in reduced(
                _by_group(dag, work, row, grouped(dag, work), f"(no {by})", **roofs.get(by, {})),
                KERNEL_PARTS[by],
                kind,
                top=_TOP["group"],
            )
        ),
        *reduced(operators, "operator", kind, top=_TOP["operator"]),
        *_device_parts(dag, steps, kind),
    ]


def profile_of(
    name: str,
    samples: Samples,
    parts: list[Part],
    *,
    devices: str,
    world_size: int,
    n_ranks: int,
    damage: tuple[str, ...],
) -> RunProfile:
    """The profile of a run from its samples and their parts, to which the wholes are added."""
    steps_ns = samples.frame["dur_ns"].to_numpy(np.int64)
    whole = samples.frame.assign(row=np.arange(len(steps_ns)), bound="", name=samples.unit, calls=1)
    return RunProfile(
        name=name,
        unit=samples.unit,
        devices=devices,
        world_size=world_size,
        n_ranks=n_ranks,
        n_steps=samples.n_steps,
        kinds=samples.kinds,
        steps_ns=tuple(steps_ns[:_N_STEPS].tolist()),
        n_odd=samples.n_odd,
        left_out=samples.left_out,
        parts=(*reduced(whole, "step", samples.kind, top=1), *parts),
        damage=damage,
    )


def graph_profile(
    graph: TraceGraph, *, name: str = "", world_size: int | None = None
) -> RunProfile:
    """The profile of a graph in its window, with the name and world size of its file by default."""
    samples, origin = graph_samples(graph), graph.origin
    called = (graph.asked or graph.dag.span).name
    if world_size is None:
        world_size = world_size_of(origin.metadata) if origin else None
    segments = graph.critical_path().segments
    gap = gap_edges(segments)
    places = pd.Series(gap).map(code_places(graph.dag, gap)).to_numpy()
    parts = [
        *path_parts(segments, samples, places),
        *work_parts(graph.dag, samples.frame, samples.rows, samples.kind),
    ]
    damage = damage_of(graph.dag, graph.interval)
    return profile_of(
        name or (name_of(origin.path) if origin and origin.path else called),
        samples,
        parts,
        devices=", ".join(graph.dag.events.device_names),
        world_size=world_size or 0,
        n_ranks=1,
        damage=damage_in_words(one for one in damage if not one.is_accepted),
    )
