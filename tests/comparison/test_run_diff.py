"""Two runs: what changed, where it comes from, and when nothing is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import htagraph as hg
from htagraph.comparison.causes import ALL_ALIKE
from htagraph.comparison.comparability import other_work
from htagraph.comparison.limits import Limits, check_run
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import OTHER, RunProfile
from htagraph.errors import GraphError, QueryError, TraceFormatError
from tests.comparison.profiles import profile, run
from tests.real_traces import located

MS = 1_000_000
_WORDS = 30
"""Of a headline, at most."""
CAPTURES = Path(__file__).parents[1] / "data" / "captures" / "single"
BASE = profile(
    {"compute": [90 * MS, 91 * MS, 90 * MS, 91 * MS], "host": [10 * MS, 11 * MS, 10 * MS, 9 * MS]},
    {"gemm": [80 * MS] * 4, "relu": [10 * MS] * 4},
)


STEADY = {"compute": [60 * MS] * 6, "copies": [30 * MS] * 6, "host": [10 * MS] * 6}


def _times(n: int):
    return st.lists(st.integers(0, 10**9), min_size=n, max_size=n)


@settings(max_examples=8)
@given(
    before=st.dictionaries(st.sampled_from("abcdef"), _times(3), min_size=1),
    after=st.dictionaries(st.sampled_from("abcdef"), _times(5), min_size=1),
    top=st.integers(1, 6),
)
def test_differences_of_a_path_add_up_to_that_of_the_steps(before, after, top):
    """To the nanosecond, also where means are no whole ones, and where short groups are joined."""
    found = RunDiff(profile(before, top=top), profile(after))

    for by in ("bound", "op", "name"):
        assert found.critical_path(by=by)["delta_ns"].sum() == found.delta_ns
    assert found.delta_ns == round(found.after.typical_step_ns) - round(
        found.before.typical_step_ns
    )
    assert len(found.verdict().split()) <= _WORDS


def test_a_run_does_not_differ_from_itself():
    """Every difference is zero, and every row is noise."""
    found = RunDiff(BASE, BASE)

    assert not found.is_change
    assert set(found.critical_path()["change"]) == {"noise"}
    assert found.verdict() == "No change beyond noise (2.62 ms): 100 ms a step is 100 ms now."


def test_a_change_is_named_with_its_cause_and_what_became_of_its_kernel():
    """Noise is not named: the host took longer, too, but that is its usual spread."""
    after = profile(
        {"compute": [108 * MS, 109 * MS] * 2, "host": [10 * MS, 12 * MS, 11 * MS, 9 * MS]},
        {"gemm": [98 * MS] * 4, "relu": [10 * MS] * 4},
    )
    is_gemm = [part.part == "name" and part.name == "compute" for part in after.parts]
    named = zip(after.parts, is_gemm, strict=True)
    after = replace(
        after, parts=tuple(replace(part, name="gemm") if is_it else part for part, is_it in named)
    )
    found = RunDiff(BASE, after)

    assert found.critical_path().set_index("name")["change"].to_dict() == {
        "compute": "grown",
        "host": "noise",
    }
    assert found.kernels()["change"].tolist() == ["grown", "noise"]
    assert found.verdict() == (
        "Steps are 18% slower: 100 ms a step is 119 ms now; 18.0 ms more in GPU compute."
    )
    assert found.notes[0].startswith("Where: GPU compute +18.0 ms in gemm (each 23% slower).")


def test_more_calls_are_told_from_slower_ones():
    """Twice as many, each as long as before."""
    bounds = {"compute": [10 * MS] * 3}
    before = profile(bounds, {"gemm": [4 * MS] * 3}, calls=4)
    after = profile(bounds, {"gemm": [8 * MS] * 3}, calls=8)

    from htagraph.comparison.causes import calls_in_words

    assert (
        calls_in_words(RunDiff(before, after).kernels().to_dict("records")[0]) == "2x as many calls"
    )


def test_kernels_are_not_compared_by_what_no_profile_has():
    with pytest.raises(QueryError, match="cannot be compared by 'colour'"):
        RunDiff(BASE, BASE).kernels(by="colour")


@pytest.mark.some(1)
@pytest.mark.parametrize("by", ["name", "shape", "module", "annotation", "phase"])
def test_every_grouping_of_kernels_has_the_same_sum(by):
    """Between a run that copies pageable memory and one that does not."""
    slow, fast = (hg.load(hg.demo_trace(name)) for name in ("dataloader", "none"))
    runs = hg.diff(slow, fast).runs
    kernels = hg.diff(slow, fast).kernels(by=by)

    assert kernels["delta_ns"].sum() == hg.diff(slow, fast).kernels()["delta_ns"].sum()
    assert runs.kernels(by=by)["delta_ns"].sum() == runs.kernels()["delta_ns"].sum()


@pytest.mark.parametrize(("delta_us", "is_change"), [(900, False), (1_100, True)])
def test_a_run_must_differ_by_one_percent(delta_us, is_change):
    """Of 100 ms, however quiet its steps are."""
    before = profile({"compute": [100 * MS] * 4})
    after = profile({"compute": [100 * MS + delta_us * 1_000] * 4})

    assert RunDiff(before, after).is_change is is_change


@pytest.mark.parametrize(("n_steps", "said"), [(2, "c: b, c: b"), (3, "c: b, c: b, 1 more")])
def test_two_steps_that_are_left_out_are_named(n_steps: int, said: str):
    """The others are counted."""
    found = RunDiff(replace(BASE, left_out=("c: b",) * n_steps), BASE)

    assert found.notes[0].endswith(f"; without {said}")
    assert found.left_out == ["before, left out: c: b"] * n_steps


QUIET, BUSY = (
    {"compute": [45 * MS, 50 * MS, 55 * MS] * 2, "host": [50 * MS, 45 * MS, 53 * MS] * 2},
    {"compute": [50 * MS, 48 * MS, 52 * MS] * 2, "host": [85 * MS, 95 * MS, 70 * MS] * 2},
)
"""Steps of 99 ms, and of 133 ms on a machine that is busy: the host waits for a core."""


@pytest.mark.parametrize(
    ("before", "after", "doubt"),
    [
        (QUIET, BUSY, "steps vary (15.4 ms is noise), and no part stands out"),
        (STEADY, STEADY | {"host": [20 * MS] * 6}, ""),
        (STEADY, {name: [n + n // 3 for n in ns] for name, ns in STEADY.items()}, ALL_ALIKE),
    ],
)
def test_runs_on_a_busy_machine_are_in_doubt(before, after, doubt):
    """Where steps vary, or all parts differ by one factor: the gate does not know."""
    found = check_run(profile(after), Limits(fail_above=0.05), baseline=profile(before))

    assert found.diff.doubt == doubt
    assert found.diff.is_change is (doubt == "")
    assert found.state == ("withheld" if doubt else "broken")
    assert found.verdict().startswith("Unknown: unknown whether the code is slower") is bool(doubt)


@pytest.mark.parametrize(
    ("n_steps", "doubt"), [(8, "2 of 8 steps were left out"), (9, ""), (0, "")]
)
def test_a_quarter_of_steps_left_out_is_doubt(n_steps, doubt):
    """The others are few, and chosen. What is longer in all of them was not left out."""
    slower = STEADY | {"host": [10 * MS + 4 * MS] * 6}
    longer = STEADY | {"host": [10 * MS + 8 * MS] * 6}
    options = {"n_odd": 2, "n_steps": n_steps} if n_steps else {}

    assert RunDiff(profile(STEADY), profile(slower, **options)).doubt == doubt
    assert RunDiff(profile(STEADY), profile(longer, **options)).doubt == ""


@pytest.mark.parametrize(("load_ms", "is_change"), [(4, False), (8, True)])
def test_what_is_longer_in_every_step_is_a_change(load_ms, is_change):
    """However steps vary: by more than 5% of a step of 99 ms."""
    after = BUSY | {"data_loading": [load_ms * MS] * 6}
    found = RunDiff(profile(QUIET), profile(after))

    assert found.is_change is is_change
    assert ("In every step +8.00 ms in data_loading." in found.details) is is_change


def test_a_part_that_is_longer_speaks_against_faster_steps():
    """The machine was busy before; the code has more to do now."""
    after = QUIET | {"data_loading": [8 * MS] * 6}
    found = check_run(profile(after), Limits(fail_above=0.05), baseline=profile(BUSY))

    assert found.diff.verdict() == (
        "Unknown whether the code is faster: 133 ms a step is 107 ms now; steps vary (15.4 ms is "
        "noise), and no part stands out."
    )
    assert "In every step +8.00 ms in data_loading." in found.diff.details
    assert found.state == "withheld"


def test_a_part_is_longer_in_every_step_although_the_whole_is_noise():
    """It is the verdict's cause."""
    after = QUIET | {"data_loading": [8 * MS] * 6}

    assert RunDiff(profile(QUIET), profile(after)).verdict() == (
        "No change beyond noise (12.3 ms): 99.3 ms a step is 107 ms now; in every step +8.00 ms in "
        "data_loading."
    )


@pytest.mark.parametrize(("calls", "is_change"), [(1, False), (2, True)])
def test_more_calls_are_a_change_however_steps_vary(calls, is_change):
    """No load of a machine changes how often a program calls what."""
    before = profile(QUIET, operators={"aten::add": [20 * MS] * 6})
    after = profile(BUSY, operators={"aten::add": [50 * MS] * 6}, calls=calls)
    found = RunDiff(before, after)

    assert found.is_change is is_change
    assert ("By the number of calls +25.0 ms in aten::add." in found.details) is is_change


def test_the_largest_part_is_named_where_each_is_within_its_noise():
    """The whole is beyond noise."""
    before = {"compute": [40 * MS, 60 * MS] * 3, "host": [60 * MS, 40 * MS] * 3}
    after = {"compute": [60 * MS, 43 * MS] * 3, "host": [43 * MS, 60 * MS] * 3}
    found = RunDiff(profile(before), profile(after))

    assert found.verdict() == "Steps are 3% slower: 100 ms a step is 103 ms now."
    assert found.details.startswith(
        "No part of the path changed by more than its own noise; the most +1.50 ms in compute."
    )


@pytest.mark.some(4)
@pytest.mark.parametrize("seed", range(50))
def test_equal_runs_are_never_a_regression(seed):
    """Whatever other programs run beside either of them."""
    known = np.random.default_rng(seed)
    quiet = known.dirichlet(np.ones(12)) * 50 * MS
    runs = [profile(on_a_busy_machine(quiet, n, known)) for n in known.integers(0, 5, 2)]
    found = check_run(runs[1], Limits(fail_above=0.05), baseline=runs[0])

    assert found.state != "broken"


def on_a_busy_machine(quiet_ns, n_others: int, known):
    """What parts take in eight steps; each 4 ms or so, all other programs have their turn."""
    n_turns = known.poisson(quiet_ns / (4 * MS) * bool(n_others), (8, len(quiet_ns)))
    waits_ns = known.gamma(np.maximum(n_turns, 1), 4 * MS * max(n_others, 1)) * (n_turns > 0)
    varied = quiet_ns * known.normal(1, 0.02, waits_ns.shape) + waits_ns
    return {f"part {at}": row.astype(int).tolist() for at, row in enumerate(varied.T)}


def test_two_steps_are_too_few_to_tell():
    """It says so, and names no cause."""
    few = profile({"compute": [100 * MS, 101 * MS]}, {"gemm": [80 * MS] * 2})
    found = RunDiff(BASE, few)

    assert np.isinf(found.noise_share)
    assert not found.is_change
    assert set(found.critical_path()["change"]) == {"unknown"}
    assert found.verdict() == (
        "Too few steps (4 before, 2 after) to tell a change from noise: 100 ms a step is 100 ms "
        "now."
    )


def test_a_first_step_that_is_longer_in_both_runs_is_no_noise():
    """Three steps, the first of which begins with an idle device: 5% are seen all the same."""
    before = profile({"compute": [130 * MS, 100 * MS, 101 * MS]}, has_first=True)
    after = profile({"compute": [136 * MS, 105 * MS, 106 * MS]}, has_first=True)

    after_a_break = (replace(before.kinds[0], has_first=False),)
    assert RunDiff(before, after).is_change
    assert not RunDiff(replace(before, kinds=after_a_break), after).is_change


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"devices": "A100"}, {"devices": "H100"}, "on A100 before, on H100 after"),
        ({"world_size": 8}, {"world_size": 16}, "a job of 8 ranks before, of 16 after"),
        ({"n_ranks": 8}, {"n_ranks": 1}, "traces of 8 ranks before, of 1 after"),
        ({"unit": "window"}, {}, "a window before, a step after"),
        ({}, {"n_odd": 5, "n_steps": 9}, "after, 5 of 9 steps are not like the others"),
    ],
)
def test_what_cannot_be_compared_is_said(before, after, said):
    """Another machine, another job, another unit, or steps of which most are odd; no more."""
    found = RunDiff(replace(BASE, **before), replace(BASE, **after))

    assert found.not_comparable == (said,)
    assert found.verdict() == f"Not comparable: {said}."


def test_another_model_has_few_names_in_common():
    """Weighted by time; templates do not count. Its steps are compared by their length."""
    bounds = {"compute": [10 * MS] * 3}
    before = profile(bounds, {"void gemm<float>(float*)": [9 * MS] * 3, "a": [MS] * 3})
    cast = profile(bounds, {"void gemm<half>(half*)": [9 * MS] * 3, "b": [MS] * 3})
    other = profile(bounds, {"conv": [9 * MS] * 3, "a": [MS] * 3})

    assert RunDiff(before, cast).details == ""
    assert RunDiff(before, other).details == (
        "Names in common make up 10% of the time: different work."
    )
    assert RunDiff(before, other).not_comparable == ()
    window = RunDiff(*(replace(one, unit="window") for one in (before, other)))
    assert window.not_comparable == ("names in common make up 10% of the time: different work",)


@pytest.mark.parametrize(("dropped_ms", "is_same"), [(0, True), (9, True), (11, False)])
def test_added_work_is_the_same_work_and_more(dropped_ms, is_same):
    """A new operator takes three quarters of the time; of what was there, a tenth may be gone."""
    bounds = {"compute": [100 * MS] * 3}
    before = profile(bounds, {"mm": [(100 - dropped_ms) * MS] * 3, "old": [dropped_ms * MS] * 3})
    after = profile(bounds, {"mm": [100 * MS] * 3, "custom": [300 * MS] * 3})

    assert (other_work(before, after) == "") is is_same
    assert (other_work(after, before) == "") is is_same


def test_loading_in_workers_is_no_other_work():
    """The repair of a slow loader can be compared, although most of the time had its name."""
    before, after = (
        profile(
            {"data_loading": [dur_ns] * 3},
            {f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__": [dur_ns] * 3},
        )
        for kind, dur_ns in (("SingleProcess", 42 * MS), ("MultiProcessing", 10 * MS))
    )

    assert RunDiff(before, after).verdict().startswith("Steps are 76% faster")


def test_a_name_that_a_baseline_has_no_room_for_is_not_new():
    """It is compared with all others that have none; a longer one is new."""
    before = profile({"a": [50] * 3, "b": [20] * 3, "c": [10] * 3}, top=2)
    after = profile({"a": [50] * 3, "b": [20] * 3, "c": [10] * 3, "d": [40] * 3})
    found = RunDiff(before, after).critical_path().set_index("name")

    assert found.loc[OTHER, "delta_ns"] == 0
    assert found["change"].to_dict() == {"a": "noise", "b": "noise", OTHER: "noise", "d": "added"}


def test_a_profile_survives_its_file(tmp_path):
    """What is read is what was written; what is none says what to do."""
    assert RunProfile.read(BASE.save(tmp_path / "base.json")) == BASE
    broken = json.loads((tmp_path / "base.json").read_text())
    broken["profile"]["parts"][1]["total_ns"] += 1
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    (tmp_path / "none.json").write_text('{"schema": "htagraph.report", "version": 2}')

    with pytest.raises(TraceFormatError, match="does not add up"):
        RunProfile.read(tmp_path / "broken.json")
    with pytest.raises(TraceFormatError, match=r"no profile.*report writes one: give it --json"):
        RunProfile.read(tmp_path / "none.json")


def test_a_part_that_is_missing_is_a_defect():
    """Of a profile as of any answer."""
    with pytest.raises(GraphError, match="by op"):
        replace(BASE, parts=tuple(part for part in BASE.parts if part.part != "op"))
    with pytest.raises(QueryError, match="bound, op or name"):
        RunDiff(BASE, BASE).critical_path(by="rule")  # type: ignore[arg-type]


def test_windows_are_compared_as_they_are():
    """One of each: the difference is named, and that noise is not known."""
    graph = hg.Trace.from_events(
        hg.synth.timeline("""
            us    |0         10        20        30        40
            cpu 1 |{ProfilerStep#0       }{ProfilerStep#1   }
            cpu 1 | [aten::mm      ]       [aten::mm    ]
        """)
    ).compile()
    found = hg.diff(graph.window("ProfilerStep#0"), graph.window("ProfilerStep#1"))

    assert found.delta_ns == found.runs.delta_ns == found.critical_path()["delta_ns"].sum()
    assert found.verdict() == (
        "No steps to tell a change from noise: 23.0 us is 19.0 us now; 2.00 us less in CPU "
        "operators."
    )


def test_a_path_is_no_run():
    with pytest.raises(
        QueryError, match=r"'rank0\.json' is not a run\. Hint: hg\.load\(FILE\) reads"
    ):
        hg.diff("rank0.json", "rank1.json")


@pytest.mark.slow
def test_a_headline_has_at_most_thirty_words():
    """Whatever is compared: demo traces and captures, each with each."""
    files = [*Path(hg.demo_trace("none")).parent.glob("*.gz"), *CAPTURES.glob("*.pt.trace.json.gz")]
    runs = [hg.run_profile(hg.load(file)) for file in files]

    said = [RunDiff(*pair).verdict() for pair in permutations(runs, 2)]
    assert len(said) > 700
    assert [one for one in said if len(one.split()) > _WORDS] == []


@pytest.mark.public("hta/trace_diff/control/control.json.gz")
def test_real_traces_do_not_differ_from_themselves():
    """Nor three of their odd steps from three even ones."""
    graph = hg.load(located("hta/trace_diff/control/control.json.gz")).compile()
    found = hg.diff(graph, graph).runs

    assert found.verdict().endswith("77.9 ms a step is 77.9 ms now.")
    assert (found.kernels()["delta_ns"] == 0).all()
    assert found.not_comparable == ()


NOISY = profile({"compute": [100_000, 120_000, 100_000, 120_000]})


@pytest.mark.parametrize(
    ("allowed", "more"),
    [(0.02, "profile about 758 typical steps each"), (0.017, "raise the limit")],
)
def test_a_capture_is_suggested_up_to_a_thousand_steps(allowed: float, more: str) -> None:
    """Four steps have a noise of 27.5%; it falls with the square root of their number."""
    found = check_run(NOISY, Limits(fail_above=allowed), baseline=NOISY).limits[0]

    assert found.state == "withheld"
    assert more in found.said


@pytest.mark.parametrize(("dur_ns", "state"), [(104_000, "passed"), (106_000, "broken")])
def test_five_percent_are_allowed_by_default(dur_ns: int, state: str) -> None:
    """Without noise."""
    before, after = (profile({"compute": [each] * 4}) for each in (100_000, dur_ns))

    assert check_run(after, Limits(), baseline=before).state == state


GEMM = "ampere_sgemm_128x64_nn"
KERNEL, HOST = {"kernel": GEMM, "by": 1.07}, {"under": "ProfilerStep", "by": 1.08}
LOADER = {"under": "enumerate(DataLoader)", "by": 1.06}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("options", "slow", "said"),
    [
        ({}, KERNEL, f" in {GEMM} (each "),
        ({"fault": "small_kernels"}, HOST, "CPU operators +176 us, +143 us of it in aten::add_"),
        ({"fault": "dataloader", "loader_ns": 7_000_000}, LOADER, " in DataLoader.__next__ "),
    ],
    ids=["kernels of one name", "host", "data loader"],
)
def test_five_percent_are_found_in_three_steps(options, slow, said):
    """With the cause; the same program with other random lengths is no change."""
    before, again, after = run(1, **options), run(11, **options), run(21, **options, **slow)

    assert before.n_compared == after.n_compared == 3
    assert not RunDiff(before, again).is_change
    found = RunDiff(before, after)
    assert found.is_change
    assert 0.04 < found.delta_share < 0.07
    assert said in found.notes[0]


def test_what_the_device_still_does_counts_although_the_host_is_done():
    """Nothing waits for the device: host ranges are the same, the steps are not."""
    before, after = run(1), run(2, fault="exposed_allreduce")

    assert before.typical_step_ns == pytest.approx(4.4e6, rel=0.05)
    assert " in all_reduce (each " in RunDiff(before, after).notes[0]
