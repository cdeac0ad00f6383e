"""Traces with a known truth: drawn timelines and simulated ranks and jobs."""

from htagraph.synth.program import (
    Action,
    Annotation,
    Call,
    Clock,
    Collective,
    Group,
    HandOver,
    JobProgram,
    Launch,
    Machine,
    Op,
    Program,
    Record,
    Spend,
    StreamWait,
    Synchronize,
    Work,
)
from htagraph.synth.simulated import SimulatedJob, SimulatedRank
from htagraph.synth.simulator import simulate, simulate_job
from htagraph.synth.timeline import timeline
from htagraph.synth.training import training_job, training_rank

__all__ = [
    "Action",
    "Annotation",
    "Call",
    "Clock",
    "Collective",
    "Group",
    "HandOver",
    "JobProgram",
    "Launch",
    "Machine",
    "Op",
    "Program",
    "Record",
    "SimulatedJob",
    "SimulatedRank",
    "Spend",
    "StreamWait",
    "Synchronize",
    "Work",
    "simulate",
    "simulate_job",
    "timeline",
    "training_job",
    "training_rank",
]
