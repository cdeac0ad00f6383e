"""Each kind of random program plants what it says, so that precision and recall mean something."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from htagraph.model.kinds import EventKind
from tests.judged_inference import UNNAMED
from tests.synth.mechanisms import KINDS, inference_program
from tests.synth.program import Program
from tests.synth.simulator import simulate
from tests.synth.strategies import inference_programs
from tests.synth.truth import Release

PLANTED = {
    "replays": Release.GRAPH,
    "stripped waits": Release.STREAM_WAIT,
    "full device": Release.DEVICE_FULL,
    "polls": Release.POLL,
    "allocator": Release.ALLOCATOR,
    "workers": Release.CALL,
    "queues": Release.HANDOFF,
    "servers": Release.REQUEST,
    "before the capture": Release.BEFORE_CAPTURE,
    "full queue": Release.QUEUE,
}
NAMED = {Release.OWN, Release.LAUNCH, Release.STREAM, Release.SYNC, Release.CALL}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_program_plants_what_its_kind_says(kind: str) -> None:
    """And no wait of another device kind, but where streams wait for copies of a worker."""
    found = [set(simulate(inference_program(kind, seed)).causes["release"]) for seed in range(4)]

    assert all(PLANTED[kind].value in releases for releases in found)


def test_every_kind_and_every_unnamed_wait_is_planted() -> None:
    """A kind that is not listed above may plant nothing, and its rule be right by chance."""
    alike = {"nothing", "mixture", "late ends"}
    assert set(KINDS) - alike == set(PLANTED), "KINDS of tests/synth/mechanisms.py, and PLANTED"
    assert set(UNNAMED) == set(PLANTED.values()), (
        "UNNAMED of tests/judged_inference.py, and PLANTED"
    )


@settings(max_examples=10)
@given(program=inference_programs(kind="nothing"))
def test_nothing_is_planted_where_nothing_is_said(program: Program) -> None:
    """All waits are recorded, or those of a thread that was started once."""
    assert set(simulate(program).causes["release"]) <= {release.value for release in NAMED}


@given(program=inference_programs())
def test_every_instant_has_one_cause(program: Program) -> None:
    """Each start and end of a host event, each start of device work has one; sources came first."""
    rank = simulate(program)
    causes, kinds = rank.causes, rank.events.kind
    n_host = int(rank.events.is_host.sum())
    n_device = int(rank.events.is_device.sum())
    sources = causes["source"][causes["source"] >= 0].to_numpy()
    at = causes["node"][causes["source"] >= 0].to_numpy()

    assert causes["node"].is_unique
    assert len(causes) == 2 * n_host + n_device
    assert (rank.events.ts_ns[sources] <= rank.events.node_ts_ns[at]).all()
    assert (kinds[sources] != EventKind.SYNC).all()
    assert (causes["late_ns"] >= 0).all()
