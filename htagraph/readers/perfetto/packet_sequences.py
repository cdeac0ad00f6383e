"""Packet sequences: interned texts, and defaults of packets.

Each writer of a trace has a sequence. After a packet that clears its state, interning ids and
omitted fields mean what the packets since then define::

    sequence 1   [clear, 1 = "mm"] [event 1] [event 1] [clear, 1 = "relu"] [event 1]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from htagraph.model.arrays import I64, Bools
from htagraph.readers.perfetto.defects import Defect
from htagraph.readers.perfetto.packets import Scanned
from htagraph.readers.perfetto.scan import AFTER_LOSS, BAD, CLEARED, SPECIAL
from htagraph.readers.repair_log import RepairLog

_TABLES = (
    "event_names",
    "event_categories",
    "debug_annotation_names",
    "debug_annotation_string_values",
)


class Symbols:
    """Distinct texts, in the order in which they are first used."""

    def __init__(self) -> None:
        self._codes = {"": 0}
        self.texts = [""]

    def code(self, text: str) -> int:
        """Number of a text."""
        code = self._codes.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code


def decoded(raw: bytes, log: RepairLog) -> str:
    """A text; bytes that are not UTF-8 are replaced, and counted."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        log.add(Defect.NOT_UTF8)
        return raw.decode("utf-8", "replace")


@dataclass(eq=False)
class _State:
    """Defaults of the packets of a sequence, from one packet on; texts are by field."""

    texts: dict[str, dict[int, bytes | str]] = field(
        default_factory=lambda: {name: {} for name in _TABLES}
    )
    clock: int = 0
    track: int | None = None
    thread: tuple[int, int] | None = None


class Sequences:
    """The states of all sequences of a trace.

    `specials`: rows and packets that are not only events: descriptors, clocks, supplements.
    """

    def __init__(self, file: Scanned, log: RepairLog, symbols: Symbols) -> None:
        self._file, self._log, self._symbols = file, log, symbols
        self.specials: list[tuple[int, Any]] = []
        self._states = [_State()]  # of packets before the first state
        current: dict[int, _State] = {}
        changes: list[tuple[int, int, int]] = []
        for row, packet in self._messages():
            sequence = int(file.scan.sequence[row])
            state = self._next(current.get(sequence), row, packet)
            if state is not current.get(sequence):
                current[sequence] = state
                changes.append((sequence, row, len(self._states)))
                self._states.append(state)
            self._define(state.texts, packet)
        self._state = self._by_packet(changes)
        self._note_losses()

    def _messages(self) -> Iterator[tuple[int, Any]]:
        """Yield packets that change a state, or are not only events."""
        what = self._file.scan.what
        for row in np.flatnonzero((what & (CLEARED | SPECIAL)) * (what & BAD == 0)).tolist():
            message = self._file.packet(row)
            if message is None:
                self._log.add(Defect.BAD_PACKET, offset=self._file.offset(row))
                continue
            if what[row] & SPECIAL:
                self.specials.append((row, message))
            yield row, message

    def _note_losses(self) -> None:
        """Count packets after a loss; recorders mark the first of a sequence, too."""
        scan = self._file.scan
        lost = (scan.what & AFTER_LOSS != 0) & pd.Series(scan.sequence).duplicated().to_numpy()
        rows = np.flatnonzero(lost)
        if len(rows):
            self._log.add(Defect.LOST, n=len(rows), offset=self._file.offset(int(rows[0])))

    def _next(self, state: _State | None, row: int, packet: Any) -> _State:  # noqa: ANN401
        """The state from a packet on."""
        if state is None or self._file.scan.what[row] & CLEARED:
            state = _State(thread=state.thread if state else None)
        if packet.HasField("trace_packet_defaults"):
            given = packet.trace_packet_defaults
            track = given.track_event_defaults
            state = _State(
                state.texts,
                given.timestamp_clock_id,
                track.track_uuid if track.HasField("track_uuid") else None,
                state.thread,
            )
        if packet.HasField("thread_descriptor"):
            of = packet.thread_descriptor
            state = _State(state.texts, state.clock, state.track, (of.pid, of.tid))
        return state

    @staticmethod
    def _define(texts: dict[str, dict[int, bytes | str]], packet: Any) -> None:  # noqa: ANN401
        """Enter the texts that a packet interns."""
        if packet.HasField("interned_data"):
            data = packet.interned_data
            for name, table in texts.items():
                is_bytes = name == "debug_annotation_string_values"
                for entry in getattr(data, name):
                    table[entry.iid] = entry.str if is_bytes else _name(entry)

    def _by_packet(self, changes: list[tuple[int, int, int]]) -> I64:
        """The state of each packet."""
        n = len(self._file.scan.at)
        number, sequences = pd.factorize(self._file.scan.sequence)
        place = {sequence: position for position, sequence in enumerate(sequences.tolist())}
        at = [place[sequence] * (n + 1) + row for sequence, row, _ in changes]
        order = np.argsort(np.array(at, dtype=np.int64), kind="stable")
        keys = np.array(at, dtype=np.int64)[order]
        states = np.array([state for _, _, state in changes], dtype=np.int64)[order]
        position = np.searchsorted(keys, number * (n + 1) + np.arange(n), side="right") - 1
        owner = np.concatenate([keys // (n + 1), [-1]])[position]
        return np.where(owner == number, np.concatenate([states, [0]])[position], 0)

    def texts(self, table: str, packets: I64, numbers: I64) -> I64:
        """Symbols of texts of a table of ``InternedData``; 0 (the empty text) for none."""
        out = np.zeros(len(numbers), dtype=np.int64)
        for row in np.flatnonzero(numbers < 0).tolist():
            text = decoded(self._file.text(int(numbers[row])), self._log)
            out[row] = self._symbols.code(text)
        interned = np.flatnonzero(numbers > 0)
        if len(interned):
            number, known = pd.factorize(numbers[interned])
            pair, pairs = pd.factorize(self._state[packets[interned]] * len(known) + number)
            n_uses = np.bincount(pair)
            codes = np.zeros(len(pairs), dtype=np.int64)
            for position, key in enumerate(pairs.tolist()):
                state, of = divmod(key, len(known))
                entry = self._states[state].texts[table].get(int(known[of]))
                if entry is None:
                    self._log.add(Defect.NO_STRING, n=int(n_uses[position]))
                    continue
                text = decoded(entry, self._log) if isinstance(entry, bytes) else entry
                codes[position] = self._symbols.code(text)
            out[interned] = codes[pair]
        return out

    def clocks(self) -> I64:
        """The default clock of each packet; 0 for the trace clock."""
        return np.array([state.clock for state in self._states], dtype=np.int64)[self._state]

    def tracks(self) -> tuple[I64, Bools]:
        """The default track of each packet's event, and whether there is one."""
        of_state = [0 if state.track is None else state.track for state in self._states]
        has = np.array([state.track is not None for state in self._states])
        return np.array(of_state, dtype=np.uint64).view(np.int64)[self._state], has[self._state]

    def thread_of(self, packet: int) -> tuple[int, int] | None:
        """Process and thread id of a packet's writer: old writers had a sequence each."""
        return self._states[int(self._state[packet])].thread


def _name(entry: Any) -> str | bytes:  # noqa: ANN401
    """The name of an entry; protobuf checks UTF-8 on access."""
    try:
        return str(entry.name)
    except UnicodeDecodeError as exc:
        return bytes(exc.object)
