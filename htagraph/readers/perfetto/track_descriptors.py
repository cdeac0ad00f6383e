"""Track descriptors: names, processes and threads, and what counters count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

_DEEPEST = 64
"""Most ancestors of a track (chosen): damaged files may have circles."""

_UNITS = ("", "ns", "", "bytes")
"""By CounterDescriptor.Unit."""


@dataclass(frozen=True)
class Track:
    """A track as described.

    Parameters
    ----------
    parent : int
        Its uuid; 0 for none.
    process, thread : tuple of int, or None
        The process, or the process and thread, that the track is.
    multiplier : int
        Factor of its values.
    """

    name: str = ""
    parent: int = 0
    process: int | None = None
    thread: tuple[int, int] | None = None
    is_incremental: bool = False
    unit: str = ""
    multiplier: int = 1


class Tracks:
    """All tracks of a trace, and the names of its processes and threads."""

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

    def _track(self, descriptor: Any) -> None:  # noqa: ANN401
        known = self.by_uuid.get(descriptor.uuid, Track())
        name = (
            _text(descriptor, "name")
            or _text(descriptor, "static_name")
            or _text(descriptor, "atrace_name")
        )
        known = replace(
            known, name=name or known.name, parent=descriptor.parent_uuid or known.parent
        )
        if descriptor.HasField("process"):
            self._process(descriptor.process)
            known = replace(known, process=descriptor.process.pid)
        if descriptor.HasField("thread"):
            self._thread(descriptor.thread)
            known = replace(known, thread=(descriptor.thread.pid, descriptor.thread.tid))
        if descriptor.HasField("counter"):
            counter = descriptor.counter
            known = replace(
                known,
                is_incremental=counter.is_incremental,
                unit=_text(counter, "unit_name") or dict(enumerate(_UNITS)).get(counter.unit, ""),
                multiplier=counter.unit_multiplier or 1,
            )
        self.by_uuid[descriptor.uuid] = known

    def _process(self, descriptor: Any) -> None:  # noqa: ANN401
        name = _text(descriptor, "process_name") or "".join(descriptor.cmdline[:1])
        self.processes[descriptor.pid] = name or self.processes.get(descriptor.pid, "")

    def _thread(self, descriptor: Any) -> None:  # noqa: ANN401
        key = (descriptor.pid, descriptor.tid)
        self.threads[key] = _text(descriptor, "thread_name") or self.threads.get(key, "")

    def _tree(self, descriptor: Any) -> None:  # noqa: ANN401
        for process in descriptor.processes:
            self.processes.setdefault(process.pid, "".join(process.cmdline[:1]))
        for thread in descriptor.threads:
            self.threads.setdefault((thread.tgid, thread.tid), _text(thread, "name"))

    def ancestors(self, uuid: int) -> list[Track]:
        """A track, its parent, and so on; empty if it is not described."""
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
    """A text; protobuf checks UTF-8 on access."""
    try:
        return str(getattr(message, field))
    except UnicodeDecodeError as exc:
        return bytes(exc.object).decode("utf-8", "replace")
