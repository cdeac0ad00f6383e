"""Matches: the chains of events that fit a pattern, as a readable table, groups and sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.errors import QueryError, one_of
from htagraph.lookup.attribution import track_labels
from htagraph.lookup.matching import Found
from htagraph.lookup.windowed import edge_frame
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.frames import EDGES
from htagraph.model.kinds import EdgeKind, in_words
from htagraph.model.recording import Origin
from htagraph.model.schema import (
    EVENT,
    Column,
    categorical,
    count,
    duration,
    identifier,
    instant,
    label,
    name,
    schema,
)
from htagraph.model.units import human_duration
from htagraph.model.window import Window
from htagraph.run.selection import Selection
from htagraph.writers.answering import answer_of, answers
from htagraph.writers.notebook_cell import escaped

if TYPE_CHECKING:
    from htagraph.writers.answer import Answer

_OF_EVENTS = {
    "": name("name of"),
    "_ts_ns": instant("start of"),
    "_dur_ns": duration("duration of"),
    "_event": replace(EVENT, meaning="row in the event table of"),
}
_OF_EDGES = {
    "_edge_kind": label("kind of the edge between the event before and", unit="EdgeKind"),
    "_lag_ns": duration("lag of the edge; -1 for none; between the event before and"),
    "_wait_ns": duration("time of the edge beyond its lag; -1 for none; of"),
    "_edge": identifier("row of the edge, -1 for none; of", unit="edge"),
}
"""Columns of each event of a match by what follows its name, and of the edge before it."""
_SHOWN = ("", "_dur_ns", "_wait_ns")
"""What is shown first: the names of all events, then their times."""


@dataclass(frozen=True, eq=False, repr=False)
class Matches:
    """The chains of events that fit a pattern, made by `TraceGraph.match`.

    Parameters
    ----------
    dag : Dag
    window : Window
    found : Found
    origin : Origin, optional

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.load(hg.demo_trace("none")).compile()
    >>> found = graph.match("op aten::linear -LAUNCH> kernel -STREAM> kernel")
    >>> len(found), len(found.select("kernel"))
    (18, 18)
    >>> found.group("kernel")[["kernel", "n_matches", "kernel_dur_ns", "kernel_wait_ns"]]
    kernel                  n_matches  kernel_dur_ns  kernel_wait_ns
    ampere_sgemm_128x64_nn         18        3.24 ms         77.4 ms
    """

    dag: Dag
    window: Window
    found: Found
    origin: Origin | None = None

    def __len__(self) -> int:
        """The number of matches."""
        return len(self.found.events[0])

    @cached_property
    def _columns(self) -> dict[str, tuple[int, str]]:
        """The columns: of which place in the pattern, and what of it."""
        return {
            key + part: (place, part)
            for place, key in enumerate(self.found.names)
            for part in (
                *_OF_EVENTS,
                *(_OF_EDGES if place and self.found.has_edges[place - 1] else ()),
            )
        }

    def _values(self, column: str) -> Any:  # noqa: ANN401  an array, or a categorical
        """The values of a column."""
        place, part = self._columns[column]
        events, edges, rows = self.dag.events, self.dag.edges, self.found.events[place]
        if part in _OF_EVENTS:
            held = {"_ts_ns": events.ts_ns, "_dur_ns": events.dur_ns}
            return events.names(rows) if part == "" else held[part][rows] if part in held else rows
        edge = self.found.edges[place - 1]
        if part == "_edge_kind":
            return categorical(gather(edges.kind, edge), EdgeKind.labels())
        if part == "_wait_ns":
            times, lag_ns = events.node_ts_ns, gather(edges.lag_ns, edge)
            ends = (times[gather(nodes, edge, 0)] for nodes in (edges.tail, edges.head))
            return np.where(edge < 0, -1, -np.subtract(*ends) - lag_ns)
        return gather(edges.lag_ns, edge) if part == "_lag_ns" else edge

    def _described(self, columns: Iterable[str]) -> dict[str, Column]:
        """What some columns are."""
        said = _OF_EVENTS | _OF_EDGES
        described = {}
        for column in columns:
            place, part = self._columns[column]
            meaning = f"{said[part].meaning} {self.found.names[place]}"
            described[column] = replace(said[part], meaning=meaning)
        return described

    @property
    def frame(self) -> Answer:
        """A row per match, in order of time.

        Of each event: its name, start, duration and row (``op``, ``op_ts_ns``, ``op_dur_ns``,
        ``op_event``). Of the edge between it and the event before it: kind, lag, wait (the time
        beyond the lag) and row (``kernel_edge_kind``, ``kernel_lag_ns``, ``kernel_wait_ns``,
        ``kernel_edge``); of a repeated arrow that is the last edge. Nesting (``CHILD``) is no edge
        and has no such columns; where it is one of several kinds, they are -1.
        """
        times = (column for column, (_, part) in self._columns.items() if part in _SHOWN)
        first = " ".join((*self.found.names, *times))
        described = schema("MATCHES", first, **self._described(self._columns))
        return answer_of(
            described.frame({column: self._values(column) for column in self._columns}), described
        )

    @property
    @answers(EDGES)
    def edges(self) -> pd.DataFrame:
        """The edges of the matches, each once, schema `frames.EDGES`."""
        rows = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *self.found.edges]))
        return edge_frame(self.dag, rows[rows >= 0])

    def select(self, which: str | None = None) -> Selection:
        """The events of the matches as a set.

        Parameters
        ----------
        which : str, optional
            Events of one place of the pattern (``"kernel_2"``); all by default.

        Raises
        ------
        QueryError
            If the pattern has no such place.
        """
        if which is not None and which not in self.found.names:
            hint = one_of(which, self.found.names)
            raise QueryError(f"the pattern has no {which!r}.", hint=hint)
        places = zip(self.found.names, self.found.events, strict=True)
        rows = np.concatenate([events for key, events in places if which in (None, key)])
        return Selection(self.dag, self.window, np.unique(rows), self.origin)

    def to_dot(self, out: str | Path | None = None, *, max_nodes: int = 300) -> str:
        """The matches as DOT, and write it if a file is given: their events, with an arrow per hop.

        An arrow says the kind of its edge, its lag, and the wait beyond that.

        Raises
        ------
        QueryError
            If there are more boxes.
        OutputError
            If the file cannot be written.
        """
        from htagraph.writers.dot import links_dot  # noqa: PLC0415  deferred: few need it

        links: dict[tuple[int, int], str] = {}
        for place, key in enumerate(self.found.names[1:]):
            pairs = zip(*(self.found.events[at].tolist() for at in (place, place + 1)), strict=True)
            links |= dict(zip(pairs, self._said_of_hop(place, key), strict=True))
        return links_dot(
            self.dag,
            links,
            tracks=partial(track_labels, self.dag),
            out=out,
            max_nodes=max_nodes,
            title=self.title,
        )

    def _said_of_hop(self, place: int, key: str) -> list[str]:
        """What an arrow says of each match."""
        if not self.found.has_edges[place]:
            return [""] * len(self)
        columns = (
            self._values(f"{key}{part}").tolist() for part in ("_edge_kind", "_lag_ns", "_wait_ns")
        )
        return [
            ""
            if lag_ns < 0
            else f"{in_words(kind)} {human_duration(lag_ns)}"
            + (f"\nwait {human_duration(wait_ns)}" if wait_ns else "")
            for kind, lag_ns, wait_ns in zip(*columns, strict=True)
        ]

    def group(self, by: str | Sequence[str] = "name") -> Answer:
        """Matches counted, and their times added up, by the names or other columns.

        Parameters
        ----------
        by : str or sequence of str, default="name"
            Columns of `frame`; ``"name"`` for the names of all events of the pattern.

        Returns
        -------
        DataFrame
            The groups, those with most time in their last events first: ``n_matches``, and of each
            event its ``_dur_ns`` and ``_wait_ns``. An event or edge that is part of several matches
            of a group counts once.

        Raises
        ------
        QueryError
            If there is no such column.
        """
        keys = [by] if isinstance(by, str) else [*by]
        keys = [*self.found.names] if keys == ["name"] else keys
        for key in keys:
            if key not in self._columns:
                hint = one_of(key, ["name", *self._columns], "columns are")
                raise QueryError(f"matches have no column {key!r}.", hint=hint)
        code = np.zeros(len(self), dtype=np.int64)
        for key in keys:
            values = self._codes(key)
            code = _codes(code * (values.max(initial=0) + 1) + values)
        n_groups = int(code.max(initial=-1)) + 1
        first = np.flatnonzero(~pd.Series(code).duplicated())
        columns = {key: self._values(key)[first] for key in keys}
        columns["n_matches"] = np.bincount(code, minlength=n_groups)
        rows_of = {"_dur_ns": self.found.events, "_wait_ns": (code, *self.found.edges)}
        for column, (place, part) in self._columns.items():
            if part in rows_of and column not in keys:
                rows, values = rows_of[part][place], self._values(column)
                columns[column] = _sums(code, rows, values, n_groups)
        described = self._described(key for key in columns if key != "n_matches")
        described["n_matches"] = count("matches of the group")
        most = columns.get(f"{self.found.names[-1]}_dur_ns", columns["n_matches"])
        order = np.argsort(-most, kind="stable")
        grouped = schema("GROUPED_MATCHES", **{column: described[column] for column in columns})
        frame = grouped.frame({column: values[order] for column, values in columns.items()})
        return answer_of(frame, grouped)

    def _codes(self, column: str) -> I64:
        """A number for each distinct value of a column."""
        place, part = self._columns[column]
        if part == "":
            return self.dag.events.name[self.found.events[place]].astype(np.int64)
        return _codes(self._values(column))

    @property
    def title(self) -> str:
        """How many matches of which pattern."""
        found = "match" if len(self) == 1 else "matches"
        return f"{len(self):,} {found} of {self.found.pattern}"

    def __repr__(self) -> str:
        """The pattern, the number of matches, and the first of them."""
        return f"{self.title}\n{self.frame!r}"

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return f"<div><b>{escaped(self.title)}</b></div>{self.frame._repr_html_()}"


def _codes(values: Any) -> I64:  # noqa: ANN401  an array, or a categorical
    """A number for each distinct value, from 0; in the order in which they come."""
    found: I64 = pd.factorize(values, use_na_sentinel=False)[0].astype(np.int64)
    return found


def _sums(code: I64, rows: I64, values: I64, n_groups: int) -> I64:
    """Sum of the values of each group, of each row once; rows below 0 have none."""
    known = np.flatnonzero(rows >= 0)
    pairs = code[known] * (int(rows.max(initial=0)) + 1) + rows[known]
    known = known[~pd.Series(pairs).duplicated()]
    out = np.zeros(n_groups, dtype=np.int64)
    np.add.at(out, code[known], values[known])
    return out
