"""The rules that make edges: of which kind, and on what evidence."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Self

from htagraph.model.arrays import I8
from htagraph.model.kinds import EdgeKind, Vocabulary, codes


@unique
class Evidence(StrEnum):
    """What says that an edge is there."""

    RECORDED = "recorded"  #: the profiler wrote it down
    DEFINITION = "by definition"  #: what a thread, a stream, a call or a window is
    INFERRED = "inferred"  #: order and times of other events; may be wrong


_RECORDED, _DEFINITION, _INFERRED = Evidence


class Rule(Vocabulary):
    """Why an edge is there: a rule makes edges of one kind, on one sort of evidence."""

    kind: EdgeKind
    evidence: Evidence
    _text: str

    def __new__(cls, code: int, kind: EdgeKind, evidence: Evidence, text: str = "") -> Self:
        """Member with what it says of its edges."""
        self = int.__new__(cls, code)
        self._value_, self.kind, self.evidence, self._text = code, kind, evidence, text
        return self

    DURATION = 0, EdgeKind.SPAN, _RECORDED
    """The event ran."""
    PROGRAM_ORDER = 1, EdgeKind.THREAD, _DEFINITION
    """Time inside a call, or between two."""
    BLOCKING_CALL = 2, EdgeKind.THREAD, _DEFINITION
    """A call, or a gap, waits for what another edge into its end names, so it needs no time of its
    own."""
    CORRELATION = 3, EdgeKind.LAUNCH, _RECORDED
    """The API call and the device event carry one correlation id."""
    STREAM_ORDER = 4, EdgeKind.STREAM, _DEFINITION
    """The previous work of the stream had ended."""
    STREAM_OVERLAP = 5, EdgeKind.STREAM, _DEFINITION
    """The previous work was still running (programmatic dependent launch)."""
    FWDBWD_FLOW = 6, EdgeKind.FLOW, _RECORDED
    """The file says which backward operator belongs to which forward operator."""
    HANDOFF = 7, EdgeKind.FLOW, _INFERRED, "wait for another thread"
    """A thread does nothing while another one works for it: autograd, or a collective."""
    SYNC_RECORD = 8, EdgeKind.SYNC, _RECORDED
    """A ``cuda_sync`` record names what is waited for."""
    CALL_SEMANTICS = 9, EdgeKind.SYNC, _DEFINITION
    """The API call waits by definition."""
    SYNCHRONOUS_COPY = 10, EdgeKind.SYNC, _DEFINITION
    """The call is synchronous, or the memory pageable, and the copy began before it returned."""
    RECORD_AND_WAIT_ORDER = 11, EdgeKind.SYNC, _INFERRED
    """An event record and a stream wait are paired by their order."""
    ENDED_RIGHT_BEFORE = 12, EdgeKind.SYNC, _INFERRED
    """All earlier work of another stream ended right before."""
    QUEUE_FULL = 13, EdgeKind.QUEUE, _INFERRED
    """As many launches were outstanding as the launch queue holds."""
    WINDOW_START = 14, EdgeKind.SOURCE, _DEFINITION
    """The first known activity of a thread."""
    WORK_FROM_BEFORE_THE_PROFILE = 15, EdgeKind.SOURCE, _DEFINITION, "work from before the profile"
    """Device work whose launch was not recorded."""
    RENDEZVOUS = 16, EdgeKind.COLLECTIVE, _DEFINITION
    """No rank leaves a collective before the last one has come."""
    GRAPH_REPLAY = 17, EdgeKind.LAUNCH, _RECORDED
    """One graph launch enqueues many device events."""
    FIRST_DEVICE_WORK = 18, EdgeKind.SOURCE, _INFERRED
    """The first work recorded on a device began long after its launch: until then the device ran
    work from before the profile."""
    NO_FREE_SMS = 19, EdgeKind.CONTENTION, _INFERRED, "no free SMs"
    """Ready work started as the last blocks of a long kernel on another stream drained."""
    RECURRING_IN_REPLAYS = 20, EdgeKind.SYNC, _INFERRED
    """The work starts right after the same work of another stream ended, again and again."""
    HOST_POLLS = 21, EdgeKind.HIDDEN_SYNC, _INFERRED
    """A thread that no call says to wait does nothing until work that it launched is done, or
    reports."""
    WORKER_CALLED = 22, EdgeKind.FLOW, _INFERRED
    """A thread does nothing until another thread gives it something to do, or an answer."""
    WAITS_FOR_WORK = 23, EdgeKind.THREAD, _INFERRED
    """A thread of a pool runs nothing until something that was not recorded gives it work."""
    RECORDED_FLOW = 24, EdgeKind.FLOW, _RECORDED
    """The file has an arrow from one slice to the other."""
    TENSOR_DEPENDENCY = 25, EdgeKind.FLOW, _RECORDED
    """An operator reads a tensor that one on another thread wrote: an execution trace says so."""
    ALLOCATOR_WAITS = 26, EdgeKind.HIDDEN_SYNC, _INFERRED
    """An allocation failed; its allocator waited for the device before it freed what it keeps."""

    @property
    def label(self) -> str:
        """The rule's name in tables: ``program order``."""
        return self._text or self.name.lower().replace("_", " ")

    @classmethod
    def kinds(cls) -> I8:
        """Kind of edge of each rule, by code."""
        return codes(rule.kind for rule in cls)

    @classmethod
    def on(cls, evidence: Evidence) -> I8:
        """Codes of the rules on some evidence."""
        return codes(rule for rule in cls if rule.evidence is evidence)
