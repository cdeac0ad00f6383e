"""Verdicts: one headline for each kind of answer, and cards with one cost each."""

from __future__ import annotations

from dataclasses import replace

import pytest

import htagraph as hg
from htagraph.findings.verdict import Finding, Fix, Pair, Verdict
from htagraph.synth import timeline
from tests.drawn import drawn_graph
from tests.real_traces import located
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

NAMES = {
    "load": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "step": "Optimizer.step#Adam.step",
    "save": "save checkpoint",
    "collect": "gc.collect",
    "compile": "_compile.compile_inner (dynamo_timed)",
    "tune": "benchmark_all_configs",
}


def judged(drawing: str, **names: str) -> Verdict:
    """The verdict on a drawing."""
    return drawn_graph(drawing, names=names).verdict()


def boxes(**times_us: int) -> str:
    """Operators one after another, by their short names; of one word, in `NAMES`."""
    return "".join(f"[{name.replace('__', '::'):{us - 2}}]" for name, us in times_us.items())


def named(times_us: dict[str, int]) -> dict[str, str]:
    """The full names of boxes."""
    return {name: NAMES[name] for name in times_us if name in NAMES}


def one_after_another(**times_us: int) -> Verdict:
    """A run on one thread, in which each cause costs the time that is drawn."""
    return judged(f"cpu 1 |{boxes(**times_us)}", **named(times_us))


def side_by_side(parallel_us: int, **before_us: int) -> Verdict:
    """A run that ends with an operator and a kernel that take as long at the same time."""
    start = " " * (sum(before_us.values()) + 7)
    return judged(
        f"""
        cpu 1    |{boxes(**before_us)}[launch >a]{boxes(aten__mm=parallel_us - 16)}[sync @*  ]
        stream 7 |{start}[{"k <a":{parallel_us - 2}}]
        """,
        **named(before_us),
    )


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("Data loading", "Data loading costs 20% of this run: 1.00 ms would be 800 us without it."),
        ("GPU copies", "GPU copies cost 20% of this run: 1.00 ms would be 800 us without them."),
        (
            "CPU operators",
            "CPU operators cost 20% of this run: 1.00 ms would be 800 us without them.",
        ),
    ],
)
def test_verb_and_pronoun_agree_with_the_cause(title: str, said: str) -> None:
    """One loads, many copies."""
    first = replace(found(0.2), cause="data loading", title=title)

    assert Verdict((first,), dur_ns=1_000_000).headline == said


@pytest.mark.parametrize(("title", "verb"), [("CPU work", "is"), ("CPU operators", "are")])
def test_verbs_agree_where_no_cost_is_known(title: str, verb: str) -> None:
    """Of a run that was not replayed, and of a chain that hides another."""
    first = replace(found(0.9), cause="CPU work", title=title)
    hidden = Verdict((first,), dur_ns=1_000_000, is_hidden=True).headline
    not_replayed = Verdict((replace(first, cost_ns=None),), dur_ns=1_000_000).headline

    assert not_replayed.startswith(f"{title} {verb} 90% of the critical path of this run;")
    assert f": {title} {verb} 90% of the critical path," in hidden


def found(share: float = 0.2, cost: float | None = None, ranks: tuple[int, ...] = ()) -> Finding:
    """A finding on a run of 1 ms, equal on some ranks; its cost is its share by default."""
    path_ns = round(share * 1_000_000)
    return Finding(
        cause="GPU compute",
        title="GPU compute",
        cost_ns=path_ns if cost is None else round(cost * 1_000_000),
        path_ns=path_ns,
        window_ns=1_000_000,
        n_segments=1,
        longest_ns=path_ns,
        longest_start_ns=0,
        n_steps=0,
        first_step="",
        last_step="",
        parts=(("compute", path_ns),),
        evidence=(),
        fix=Fix("Compute less."),
        ranks=tuple((rank, path_ns // len(ranks)) for rank in ranks),
    )


def pair_of(together: float) -> Verdict:
    """Two causes that cost a tenth each, and together more."""
    other = replace(found(0.1), cause="CPU work", title="CPU work")
    pair = Pair((found(0.1), other), round(together * 1_000_000))
    return Verdict(pair.findings, dur_ns=1_000_000, pair=pair)


# One headline for each kind of answer.


def test_one_cause_is_the_headline_with_the_step_before_and_after() -> None:
    """The trace of README: a loader that stalls."""
    verdict = hg.load(hg.demo_trace("dataloader")).compile().verdict()

    assert verdict.state == "first cause"
    assert verdict.headline == (
        "Data loading costs 72% of this run: 7.92 ms a step would be 2.22 ms without it."
    )


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jobs/ddp_sleep_4", "Rank 3 is late: it costs 70%."),
        ("pipelines/pp4_1f1b_slow", "Stage 2 takes 1.9 times as long as its peers: it costs 35%."),
        ("pipelines/moe_hot2", "Rank 2 gets 2.0 times the mean of tokens: it costs 43%."),
    ],
)
def test_one_rank_stage_or_group_of_experts_is_the_headline(name: str, said: str) -> None:
    """All others wait for it, so it leads, although operators cost more of a pipeline."""
    verdict = hg.load_job(located(f"captures/{name}")).verdict()

    assert verdict.state == "one rank"
    assert verdict.headline.startswith(said)


def test_two_chains_are_the_headline_with_what_both_cost() -> None:
    """400 of 706 us are both an operator and a kernel."""
    verdict = side_by_side(400, load=180, save=120)

    assert verdict.state == "side by side"
    assert verdict.headline == (
        "GPU compute and CPU work run in parallel and take about as long: without either one "
        "this run is at most 2% shorter, without both 58%."
    )
    assert [card.title for card in verdict.cards] == [
        "GPU compute and CPU work, in parallel",
        "Data loading",
    ]


def test_work_that_alone_costs_much_is_called_busy() -> None:
    """Nothing else can help."""
    verdict = hg.load(hg.demo_trace("none")).compile().verdict()

    assert verdict.state == "work bound"
    assert verdict.headline == (
        "The GPU is busy: kernels alone cost 72% of this run, and nothing else costs more than "
        "11% (GPU copies). Only fewer or faster kernels help."
    )


def test_three_chains_that_take_as_long_cost_nothing() -> None:
    """An operator, a kernel and a copy: without two of them, the third takes as long."""
    verdict = judged(f"""
        cpu 1    |[launch >a][copy >b   ]{boxes(aten__mm=1_000)}[sync @*]
        stream 7 |        [k <a{" " * 1_020}]
        stream 9 |                      [Memcpy HtoD <b{" " * 1_000}]
    """)

    assert verdict.state == "nothing"
    assert repr(verdict) == "Nothing here costs more than 5%."


def test_a_hidden_chain_of_unknown_waits_is_said_to_be_one() -> None:
    """The host never waits, but the device ends as late, and mostly with work of before."""
    verdict = judged(f"""
        cpu 1    |[launch >a][launch >b]{boxes(aten__mm=400)}
        stream 7 |          [k1 <a ]{" " * 220}[k2 <b{" " * 172}]
    """)

    assert verdict.state == "hidden chain"
    assert verdict.headline == (
        "Not enough recorded to say what limits this run: CPU work is 100% of the critical path, "
        "but work that the trace does not explain takes as long at the same time."
    )
    assert (verdict.cards, verdict.also) == ((), "")


def test_a_withheld_verdict_says_why() -> None:
    verdict = judged("")

    assert (verdict.state, verdict.cards) == ("withheld", ())
    assert verdict.headline == (
        "Not enough recorded to say what limits this run: nothing was recorded in this window. "
        "What was recorded: htagraph info FILE"
    )


def test_a_run_that_was_not_replayed_says_what_is_on_its_path(monkeypatch, tmp_path) -> None:
    """What that costs is unknown."""
    monkeypatch.setattr("htagraph.job.job._REPLAYED_EVENTS", 10)
    program = training_job(ranks=2, straggler=1, delay_ns=9_000_000, steps=2, layers=2)
    simulate_job(program).write(tmp_path)
    verdict = hg.load_job(tmp_path).verdict()

    assert verdict.headline.startswith("Rank 1 is late: 83% of the critical path of ")
    assert verdict.cards[0].said.endswith("% of the path")


# What is a card, and what it says.


def test_three_cards_are_printed() -> None:
    """Of four causes; the fourth is named. Two side by side take one of the places."""
    verdict = one_after_another(load=280, aten__mm=260, save=240, step=220)

    assert [card.title for card in verdict.cards] == [
        "Data loading",
        "CPU operators",
        "Checkpointing",
    ]
    assert verdict.also == "Also: optimizer 22%."
    assert len(side_by_side(400, load=180, save=120).cards) == 2


def test_a_cause_has_a_card_from_five_percent_on() -> None:
    """And is named from 1% on."""
    verdict = one_after_another(aten__mm=883, load=56, step=44, save=12, collect=5)

    assert [card.said for card in verdict.cards] == ["costs 88%", "costs 6%"]
    assert verdict.also == "Also: optimizer 4%, checkpointing 1%."
    assert one_after_another(aten__mm=946, load=46, step=8).also == "Also: data loading 5%."


@pytest.mark.parametrize(("other_us", "state"), [(270, "work bound"), (330, "first cause")])
def test_the_device_is_busy_if_nothing_else_costs_half_as_much(other_us: int, state: str) -> None:
    """As 600 us of operators. The other is loading."""
    assert one_after_another(aten__mm=600, load=other_us, step=20).state == state


@pytest.mark.parametrize(
    ("cost", "said"), [(0.42, "on 50% of the critical path, partly hidden"), (0.43, "")]
)
def test_a_card_says_where_a_cause_is_partly_hidden(cost: float, said: str) -> None:
    """84% or 86% of the time that it has of the path."""
    assert found(0.5, cost).hidden == said


@pytest.mark.parametrize(
    ("saves", "said"),
    [
        (0.008, "Compute less."),
        (0.012, "Compute less (saves about 1%)."),
        (0.35, "Compute less (saves about 35%)."),
        (0.37, "Compute less."),
    ],
)
def test_a_fix_has_a_number_if_it_adds_a_fact(saves: float, said: str) -> None:
    """From 1% of the run on, and below nine tenths of the cost, which is 40%."""
    fix = Fix("Compute less.", saves_ns=round(saves * 1_000_000))

    assert replace(found(0.4), fix=fix).advice == said


@pytest.mark.parametrize(
    ("together", "said"), [(0.89, "without both 89%."), (0.91, "Both have to shrink.")]
)
def test_two_chains_of_all_of_the_run_have_no_number(together: float, said: str) -> None:
    assert pair_of(together).headline.endswith(said)


@pytest.mark.parametrize(
    ("us", "said"),
    [(95, "aten::mm 500 us"), (105, "aten::mm 500 us, aten::add 105 us")],
)
def test_a_small_second_contributor_is_not_named(us: int, said: str) -> None:
    """Below a fifth of the first."""
    assert one_after_another(aten__mm=500, aten__add=us).findings[0].contributors == said


def test_a_chain_off_the_path_is_said_to_be_hidden() -> None:
    """The host never waits: no time of the path is the device's."""
    (both,) = judged("""
        cpu 1    |[launch >a    ][aten::mm        ][launch >b    ][aten::mm        ][launch >c    ]
        stream 7 |     [k <a                         ][k <b                         ][k <c       ]
    """).cards

    assert [one.path_ns for one in both.findings] == [81_000, 0]
    assert both.said == "together cost 100%"


def test_three_ranks_are_named() -> None:
    """Of eight."""
    assert found(ranks=tuple(range(8))).where == (
        "12% on rank 0, 12% on rank 1, 12% on rank 2, the rest on 5 others"
    )


def test_what_nothing_can_be_blamed_for_is_named_as_a_part_of_the_path() -> None:
    """It has no cost."""
    verdict = Verdict((found(0.9),), dur_ns=1_000_000, apart=(("unknown waits", 100_000),))

    assert verdict.also == "Also: unknown waits 10% of the path."


# How it is printed.


def test_a_verdict_is_a_headline_and_its_cards() -> None:
    assert repr(one_after_another(load=600, step=350, aten__mm=50)).splitlines() == [
        "Data loading costs 60% of this run: 1.00 ms would be 400 us without it.",
        "",
        f"1. Data loading{'costs 60%':>73}",
        "   DataLoader.__next__ 600 us",
        "   -> Load batches in workers: DataLoader(num_workers=2, persistent_workers=True).",
        f"2. Optimizer{'costs 35%':>76}",
        "   Optimizer.step#Adam.step 350 us",
        "   -> Update all parameters in one call (fused=True).",
        f"3. CPU operators{'costs 5%':>72}",
        "   aten::mm 50.0 us",
        "   -> Start with the largest (torch.compile, torch.set_num_threads).",
    ]


def test_lines_have_88_columns() -> None:
    verdict = Verdict((), withheld="no " * 99)

    assert max(map(len, repr(verdict).splitlines())) in {86, 87, 88}


def test_three_sentences_on_damage_are_printed() -> None:
    """Of five, before the headline; how to get the rest is said."""
    verdict = Verdict((found(),), dur_ns=1_000_000, damage=tuple(f"Damage {n}." for n in range(5)))

    assert repr(verdict).splitlines()[:6] == [
        "Damage 0.",
        "Damage 1.",
        "Damage 2.",
        "And 2 more sentences: htagraph ask damage.",
        "",
        "The GPU is busy: kernels alone cost 20% of this run. Only fewer or faster kernels help.",
    ]


def test_damage_is_told_of_a_verdict_that_is_withheld() -> None:
    """It may be why."""
    assert repr(Verdict((), "too little.", damage=("It is cut off.",))).splitlines() == [
        "It is cut off.",
        "",
        "Not enough recorded to say what limits this run: too little.",
    ]


def test_a_notebook_shows_the_same_sentences() -> None:
    """As elements of a page, whatever names hold."""
    verdict = judged("cpu 1 |[op                 ]", op="<b>op</b>")
    shown = verdict._repr_html_()

    assert verdict.headline in shown
    assert "&lt;b&gt;op&lt;/b&gt;" in shown
    assert "<b>" not in shown


# For programs.


def test_a_document_has_the_numbers_of_the_cards() -> None:
    """Both causes of a pair are one item, with what each costs alone."""
    verdict = side_by_side(400, load=180, save=120)
    document = verdict.document()

    assert (document["headline"], document["state"]) == (verdict.headline, verdict.state)
    assert [(one["causes"], one["is_card"]) for one in document["items"]] == [
        (["GPU compute", "CPU work"], True),
        (["data loading"], True),
        (["checkpointing"], False),
    ]
    assert document["items"][0]["alone_ns"] == {"GPU compute": 11_000, "CPU work": 6_000}
    assert document["items"][0]["cost_ns"] == verdict.cards[0].cost_ns == 406_000
    assert document["also"] == "Also: checkpointing 17%."


def test_the_time_of_all_items_and_what_is_apart_is_the_window() -> None:
    """Of a run that opens with 36 us of work from before the profile."""
    events = timeline("""
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >a]
        stream 7 |                              [old ][k <a                    ]
    """)
    graph = hg.Trace.from_events(events).compile()
    document = graph.window("trace").verdict().document()

    assert document["apart"] == {"work from before the profile": 36_000}
    assert sum(one["path_ns"] for one in document["items"]) + 36_000 == document["window_ns"]


def test_steps_that_tile_a_run_are_its_unit() -> None:
    """Three steps: times are those of one. One step: it is told as that."""
    drawn = simulate(training_rank(fault="dataloader")).events
    graph = hg.Trace.from_events(drawn).compile()

    assert " a step would be " in graph.verdict().headline
    alone = graph.window("ProfilerStep#1").verdict().headline
    assert " a step" not in alone
    assert " of this step: " in alone
