"""What a change saved, against what was predicted, beyond what recordings differ by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from htagraph.comparison.decision import Decision, Expected
from htagraph.comparison.run_profile import RunProfile
from tests.comparison.profiles import profile

MS = 1_000_000
HALF = Expected(0.5, 0.3, 0.7, ("loader",))


def run(
    loader: float, work: float = 40, *, spread: float = 0.01, n: int = 6, **more: object
) -> RunProfile:
    """A run whose steps wait for a loader and then work, in ms, and differ by a share."""
    by = [1 + spread * (-1) ** step for step in range(n)]
    lengths = {
        name: [round(ms * MS * one) for one in by]
        for name, ms in (("loader", loader), ("work", work))
        if ms
    }
    made = profile(lengths, **more)
    return replace(
        made,
        parts=tuple(
            replace(part, bound="host") if part.part == "name" else part for part in made.parts
        ),
    )


def decide(before: list[RunProfile], after: list[RunProfile], expected: Expected = HALF):
    """The decision on some recordings of each side."""
    return Decision(expected, tuple(before), tuple(after))


@pytest.mark.parametrize(
    ("loader_ms", "state"),
    [(2, "confirmed"), (40, "no effect"), (56, "unclear"), (120, "worse")],
)
def test_one_recording_of_each_side_decides_what_is_far_from_noise(loader_ms, state):
    """Of 80 ms a step, half is to go: 38 are gone, none, 16 more, and 80 more."""
    assert decide([run(40)], [run(loader_ms)]).state == state


def test_recordings_in_turn_tell_that_nothing_came_of_it():
    """Four of each side that differ by 1%."""
    before, after = ([run(40 * (1 + 0.01 * at)) for at in range(4)] for _ in "ab")
    found = decide(before, after)

    assert found.state == "no effect"
    assert found.verdict().startswith("No effect: 0% of 50% predicted saved, within noise (-")


def test_less_than_half_of_what_was_predicted_is_smaller():
    """12 ms of 40, seen by six recordings of each side."""
    found = decide([run(40)] * 6, [run(28)] * 6)

    assert found.state == "smaller"
    assert found.verdict().startswith("Smaller than predicted: 15% of 50% predicted saved (")


def test_a_machine_that_became_faster_confirms_nothing():
    """All work takes half as long, as the work does that the change does not touch."""
    found = decide([run(40)] * 4, [run(20, 20)] * 4)

    assert round(found.clock, 2) == 0.5
    assert found.state == "unclear"
    assert "Work that the change does not touch is 50% faster, too" in found.verdict()


def test_a_machine_that_became_slower_does_not_make_a_change_worse():
    """The loader is gone, and all else takes three times as long."""
    assert decide([run(40)] * 4, [run(0, 120)] * 4).state == "unclear"


def test_without_work_of_its_own_nothing_is_a_clock():
    """Work of 2% of a step tells nothing about the machine."""
    expected = Expected(0.5, 0.3, 0.7, ("loader",))
    assert decide([run(98, 2)], [run(20, 1)], expected).clock == 1.0


def test_steps_that_differ_widely_make_recordings_that_do():
    """A quarter is gone, but steps of one recording differ by 30%."""
    found = decide([run(40, spread=0.3)], [run(20, spread=0.3)])

    assert found.state == "unclear"
    assert found.n_runs == 20
    assert found.verdict().endswith("20 recordings of each side, in turn, would tell.")


def test_what_is_gone_from_every_step_needs_no_quiet_machine():
    """Nothing of the loader is left, while steps of one recording differ by 30%."""
    found = decide([run(40, spread=0.3)], [run(1, spread=0.3)])

    assert found.interval[0] < 0
    assert found.state == "confirmed"
    assert "49% of 50% predicted saved, by what differs in every step;" in found.verdict()


def test_what_is_claimed_is_the_least_of_steps_and_clock():
    """The loader is gone, and the work that it leaves alone takes half as long."""
    found = decide([run(40)], [run(1, 20)])

    assert found.saved == pytest.approx(1 - 2 * 21 / 80, abs=0.01)
    assert found.verdict().endswith("80.0 ms a step is 21.0 ms now, but other work is faster, too.")


def test_one_step_tells_next_to_nothing():
    """Even if it is a fifth as long."""
    assert decide([run(40, n=1)], [run(0, 16, n=1)]).state == "unclear"


def test_recordings_that_differ_by_more_than_their_steps_widen_the_interval():
    """20% from one to the next, with steps that differ by 1%."""
    quiet = decide([run(40), run(40)], [run(10), run(10)])
    loud = decide([run(36), run(44)], [run(5), run(15)])

    assert loud.interval[0] < quiet.interval[0] < quiet.saved < quiet.interval[1] < loud.interval[1]


def test_no_more_recordings_are_suggested_than_are_practical():
    """Of a saving of 2%."""
    found = decide([run(40)], [run(40)], Expected(0.02, 0.0, 0.1))

    assert found.n_runs == 0
    assert found.verdict().endswith("use a machine that does nothing else.")


def test_what_cannot_be_compared_or_is_damaged_is_not_decided():
    """Another number of ranks, and a file that was cut off."""
    found = decide([run(40)], [run(2, n_ranks=2, damage=("The file was cut off.",))])

    assert found.state == "not comparable"
    assert found.not_comparable == (
        "traces of 1 ranks before, of 2 after",
        "after: The file was cut off",
    )


def test_a_prediction_is_widened_by_what_recordings_differ_by():
    """Half of a step, from steps that differ by 1%: 4.6 times 5.8%."""
    found = Expected.of(0.5, 0.5, 0.5, run(40), run(0))

    assert [round(end, 2) for end in found[1:3]] == [0.34, 0.62]


@pytest.mark.parametrize(
    ("after_ms", "state"), [(84, "unclear"), (72, "unclear"), (56, "confirmed")]
)
def test_steps_that_are_not_recorded_have_to_bear_it_out(after_ms, state):
    """Of 80 ms a quarter is half of what was predicted; recorded steps save 38 of them."""
    found = replace(decide([run(40)], [run(2)]), unrecorded_ns=((80 * MS, 0), (0, after_ms * MS)))

    assert found.state == state
    said = found.verdict() if state == "unclear" else " ".join(found.notes)
    assert f" {abs(80 - after_ms) / 80:.0%} {'longer' if after_ms > 80 else 'shorter'}." in said
    assert found.n_runs == 0


def test_nothing_is_known_of_steps_that_one_side_did_not_time():
    """As if none were timed."""
    found = replace(decide([run(40)], [run(2)]), unrecorded_ns=((80 * MS,), (0,)))

    assert (found.unrecorded, found.state) == (None, "confirmed")


def restless(ms: float) -> RunProfile:
    """A run of which four of six steps are unlike the others."""
    return run(ms, n_odd=4)


def test_a_recording_of_a_busy_machine_is_left_out():
    """Of three before, one; the others decide."""
    found = decide([run(40), restless(400), run(40)], [run(2), run(2)])

    assert (found.state, found.document()["n_before"]) == ("confirmed", 2)
    assert "1 recording left out: most steps are unlike the others." in found.notes


def test_a_side_of_nothing_else_is_unclear():
    """The machine is the reason, and more recordings of it tell no more."""
    found = decide([run(40)], [restless(2)])

    assert (found.state, found.n_runs) == ("unclear", 0)
    assert "After, 4 of 6 steps are not like the others: use a machine" in found.verdict()


def test_the_document_has_what_the_sentence_says():
    """And JSON knows no infinity."""
    found = decide([run(40)], [run(2)]).document()

    assert (found["state"], found["n_before"], found["n_after"]) == ("confirmed", 1, 1)
    assert found["low_share"] < found["saved_share"] < found["high_share"]
