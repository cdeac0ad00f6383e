"""Tracks of a trace: what they are called, whose they are, and what their counters count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Track", "Tracks"]

_DEEPEST = 64
_UNITS = ("", "ns", "", "bytes")  # CounterDescriptor.Unit


@dataclass(frozen=True)
class Track:
    """A track as its descriptors have it.

    Parameters
    ----------
    parent : int
        Its uuid; 0 for none.
    process, thread : tuple of int, or None
        The process, or the process and thread, that it is; ids as in the file.
    unit : str
    multiplier : int
        Values are to be multiplied by it.
    """

    name: str = ""
    parent: int = 0
    process: int | None = None
    thread: tuple[int, int] | None = None
    is_counter: bool = False
    is_incremental: bool = False
    unit: str = ""
    multiplier: int = 1


class Tracks:
    """All tracks of a trace, and the names of its processes and threads.

    Parameters
    ----------
    specials : list of (int, message)
        Packets that are no mere events, and their rows.
    """

    def __init__(self, specials: list[tuple[int, Any]]) -> None:
        self.by_uuid: dict[int, Track] = {}
        self.processes: dict[int, str] = {}
        self.threads: dict[tuple[int, int], str] = {}
        for _, packet in specials:
            for name, enter in (
                ("track_descriptor", self._track),
                ("process_descriptor", self._process),
                ("thread_descriptor", self._thread),
                ("process_tree", self._tree),
            ):
                if packet.HasField(name):
                    enter(getattr(packet, name))

    def _track(self, said: Any) -> None:  # noqa: ANN401
        known = self.by_uuid.get(said.uuid, Track())
        name = _text(said, "name") or _text(said, "static_name") or _text(said, "atrace_name")
        known = replace(known, name=name or known.name, parent=said.parent_uuid or known.parent)
        if said.HasField("process"):
            self._process(said.process)
            known = replace(known, process=said.process.pid)
        if said.HasField("thread"):
            self._thread(said.thread)
            known = replace(known, thread=(said.thread.pid, said.thread.tid))
        if said.HasField("counter"):
            counter = said.counter
            known = replace(
                known,
                is_counter=True,
                is_incremental=counter.is_incremental,
                unit=_text(counter, "unit_name") or dict(enumerate(_UNITS)).get(counter.unit, ""),
                multiplier=counter.unit_multiplier or 1,
            )
        self.by_uuid[said.uuid] = known

    def _process(self, said: Any) -> None:  # noqa: ANN401
        name = _text(said, "process_name") or "".join(said.cmdline[:1])
        self.processes[said.pid] = name or self.processes.get(said.pid, "")

    def _thread(self, said: Any) -> None:  # noqa: ANN401
        key = (said.pid, said.tid)
        self.threads[key] = _text(said, "thread_name") or self.threads.get(key, "")

    def _tree(self, said: Any) -> None:  # noqa: ANN401
        for process in said.processes:
            self.processes.setdefault(process.pid, "".join(process.cmdline[:1]))
        for thread in said.threads:
            self.threads.setdefault((thread.tgid, thread.tid), _text(thread, "name"))

    def ancestors(self, uuid: int) -> list[Track]:
        """A track, its parent, and so on; empty where nothing describes it."""
        found: list[Track] = []
        while uuid in self.by_uuid and len(found) < _DEEPEST:
            found.append(self.by_uuid[uuid])
            uuid = found[-1].parent
            if not uuid:
                break
        return found

    def process_of(self, uuid: int) -> int | None:
        """The process that a track belongs to."""
        for track in self.ancestors(uuid):
            if track.thread is not None:
                return track.thread[0]
            if track.process is not None:
                return track.process
        return None


def _text(message: Any, field: str) -> str:  # noqa: ANN401
    """A text; protobuf checks it where it is read."""
    try:
        return str(getattr(message, field))
    except UnicodeDecodeError as exc:
        return bytes(exc.object).decode("utf-8", "replace")
