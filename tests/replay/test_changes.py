"""What each change saves on a drawn trace, by hand."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.model.kinds import KernelClass
from htagraph.replay.assumptions import Assumption
from htagraph.replay.change_options import ChangeOptions, options_of
from htagraph.replay.changes import TokenSurplus, balance
from htagraph.replay.draft import of_class
from htagraph.replay.rehearsal import Rehearsal
from tests.replay.drawn import drawn, saved_us


def test_a_scaled_kernel_delays_what_waits_for_it():
    """Half of 20 us less; the call still returns 3 us after the kernel."""
    graph = drawn("""
        us       |0         10        20        30
        cpu 1    |[launch >a][sync @*           ]
        stream 7 |      [gemm <a             ]
    """)

    assert saved_us(graph, hg.scale("gemm", by=0.5)) == 11
    assert saved_us(graph, hg.scale("gemm", by=2)) == -22


def test_without_an_operator_what_it_launched_is_gone():
    """Operator, call and kernel: the other call is first, and its kernel starts 5 us after that."""
    graph = drawn("""
        us       |0         10        20        30        40
        cpu 1    |[op [launch >a]][launch >b]
        stream 7 |         [gemm <a         ][norm <b      ]
    """)

    assert saved_us(graph, hg.remove("op")) == 22


def test_a_call_that_need_not_wait_lets_the_host_run_ahead():
    """The second kernel is queued behind the first, 1 to 2 us after it in place of 7."""
    graph = drawn("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][streamsync @7    ][launch >b]
        stream 7 |      [gemm <a             ]       [norm <b]
    """)

    assert saved_us(graph, hg.no_wait("cudaStreamSynchronize")) == 6
    assert saved_us(graph, hg.remove("sync")) == 6
    saving = hg.what_if(graph, hg.remove("sync")).saves_ns
    assert saving is not None
    assert (saving.low_ns, saving.expected_ns) == (5_000, 6_000)


def test_inserted_time_behind_the_last_kernel_lengthens_the_run_by_just_that():
    graph = drawn("""
        us       |0         10        20        30
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [gemm <a   ][last <b       ]
    """)

    assert saved_us(graph, hg.insert(after="last", dur_ns=7_000)) == -7
    assert saved_us(graph, hg.insert(after="cudaLaunchKernel", dur_ns=1_000)) == 0


@pytest.mark.parametrize(
    "change",
    [hg.scale("nothing", by=0.5), hg.remove("nothing"), hg.overlap("nothing"), hg.prefetch()],
)
def test_what_is_not_there_cannot_be_changed(change):
    graph = drawn("cpu 1 |[aten::mm]")

    with pytest.raises(QueryError):
        hg.what_if(graph, change).dur_ns  # noqa: B018


def test_changes_beyond_a_million_are_refused():
    """Times would leave the range of int64."""
    assert str(hg.scale("gemm", by=9e5)) == "scale('gemm', by=900000)"
    assert str(9 * 10**14) in str(hg.insert(after="gemm", dur_ns=9 * 10**14))
    with pytest.raises(QueryError, match="between 0 and 1,000,000"):
        hg.scale("gemm", by=1.1e6)
    with pytest.raises(QueryError, match="between 0 and 1e15"):
        hg.insert(after="gemm", dur_ns=11 * 10**14)


@pytest.mark.parametrize(
    ("time", "dur_ns"), [("3ns", 3), ("1.5us", 1_500), ("2ms", 2_000_000), ("4s", 4 * 10**9)]
)
def test_a_typed_time_has_a_unit(time, dur_ns):
    options = ChangeOptions(insert=[f"gemm={time}"])

    assert options.changes() == (hg.insert(after="gemm", dur_ns=dur_ns),)


SHAPED = "aten::_softmax bf16[16, 5185, 5185]"
OPTIONS = {
    "--without gpu-copies": hg.without("GPU copies"),
    "--scale 'a b=c=0.3'": hg.scale("a b=c", by=0.3),
    "--scale 'code after aten::mm=0.5'": hg.scale(hg.code("after aten::mm"), by=0.5),
    "--remove aten::item": hg.remove("aten::item"),
    "--remove 'code train.py:3'": hg.remove(hg.code("train.py:3")),
    "--no-wait 'cuda*'": hg.no_wait("cuda*"),
    "--insert gemm=50000ns": hg.insert(after="gemm", dur_ns=50_000),
    "--reweigh launch=0.5": hg.reweigh("LAUNCH", by=0.5),
    "--reweigh launch=5000ns": hg.reweigh("launch", lag_ns=5_000),
    "--overlap 'nccl*'": hg.overlap("nccl*"),
    "--fuse 'add<a, b>,mul'": hg.fuse("add<a, b>", "mul"),
    "--at-roof all": hg.at_roof(),
    f"--at-roof '{SHAPED}'": hg.at_roof(SHAPED),
    "--allow-tf32": hg.allow_tf32(),
    "--prefetch 1": hg.prefetch(),
    "--prefetch 3": hg.prefetch(3),
    "--graphed": hg.graphed(),
    "--bandwidth 2": hg.bandwidth(2),
    "--equalise": hg.equalise(),
    "--graphed --on-rank 3": hg.graphed().on_rank(3),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_a_change_is_written_as_the_options_that_make_it(options):
    """As a shell reads them."""
    typed: dict[str, object] = {}
    for word in shlex.split(options):
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            typed[name] = True
        elif name in ("prefetch", "bandwidth", "on_rank"):
            typed[name] = int(word)
        else:
            typed[name] = [word]
    typed["rank"] = typed.pop("on_rank", None)

    assert options_of(OPTIONS[options]) == options
    assert ChangeOptions(**typed).changes() == (OPTIONS[options],)


def test_every_option_is_written():
    """But the rank, which goes with another."""
    names = {words.split()[0][2:].replace("-", "_") for words in OPTIONS}

    assert names | {"rank"} == {field.name for field in fields(ChangeOptions)}


@pytest.mark.parametrize(
    "change",
    [
        hg.overlap(of_class(KernelClass.COMMUNICATION)),
        hg.remove(re.compile("gemm.*")),
        hg.scale("code of mine", by=0.5),
        hg.at_roof("gemm", efficiency=0.8),
        hg.fuse("one"),
        hg.fuse("a, b", "c"),
        balance(TokenSurplus()),
        hg.remove(re.compile("gemm.*")).on_rank(2),
    ],
    ids=str,
)
def test_what_no_option_makes_has_none(change):
    """Groups and patterns; a name that stands for code, or for two names."""
    assert options_of(change) == ""


STEPS = """
    cpu 1    |{ProfilerStep#1 [launch >a] [aten::mm   ] }{ProfilerStep#2 [launch >b][aten::mm ]}
    stream 7 |                 [gemm <a]                                   [gemm <b   ]
"""


def test_without_a_cause_a_run_is_as_much_shorter_as_the_cause_costs():
    graph = drawn(STEPS)

    for finding in graph.verdict().findings:
        assert hg.what_if(graph, hg.without(finding.cause)).saves_ns[:3] == (finding.cost_ns,) * 3


def test_a_cause_that_the_run_has_not_is_refused_with_those_it_has():
    with pytest.raises(QueryError) as refused:
        hg.what_if(drawn(STEPS), hg.without("late rank")).dur_ns  # noqa: B018

    assert "loses no time to 'late-rank'" in str(refused.value)
    assert "cpu-work" in str(refused.value)
    assert "--" not in str(refused.value)


def test_a_cause_is_gone_only_in_a_window():
    """Which of its time is on the critical path depends on that."""
    graph = drawn(STEPS)

    with pytest.raises(QueryError, match="pass it to what_if"):
        Rehearsal(graph.dag, graph.interval).run((hg.without("CPU work"),))


def test_a_cause_may_be_gone_together_with_other_changes():
    """Then all readings apply: it is no cost any more."""
    graph = drawn(STEPS)
    alone, both = (
        hg.what_if(graph, *changes).saves_ns.expected_ns
        for changes in ([hg.without("CPU work")], [hg.without("CPU work"), hg.remove("gemm")])
    )

    assert both >= alone


def test_twice_the_bandwidth_halves_all_but_the_latency():
    """Of 42 us, 5 are; 0 to 10 by other readings. Nothing is saved where others are late."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a]
        stream 7 |      [ncclAllReduce <a                        ]
    """)
    saving = hg.what_if(graph, hg.bandwidth(2)).saves_ns

    assert saving is not None
    assert dict(saving.readings)[Assumption.RIGID] == 16_000
    assert (saving.low_ns, saving.expected_ns, saving.high_ns) == (0, 18_500, 21_000)


TWO_KERNELS = """
    us       |0         10        20        30        40        50
    cpu 1    |[launch >a][launch >b][sync @*                     ]
    stream 7 |                            [gemm <a   ]
    stream 9 |                      [copy <b          ]
"""
"""The gemm starts 28 us after its call and ends at 40; the copy starts after 11, ends at 41."""


def launches(graph: hg.TraceGraph):
    return graph.edges.plain.query("kind == 'launch'").sort_values("head_event")


def test_edges_of_a_kind_or_a_rule_take_another_time():
    """The copy is last; it takes 19 us from its call at 11 us on, and the call returns 11 us on."""
    graph = drawn(TWO_KERNELS)

    assert saved_us(graph, hg.reweigh("launch", by=1)) == 0
    assert saved_us(graph, hg.reweigh("LAUNCH", by=0.5)) == 5.5
    assert saved_us(graph, hg.reweigh("launch", lag_ns=0)) == 11
    assert saved_us(graph, hg.reweigh("correlation", lag_ns=50_000)) == -39


def test_the_path_is_found_again_where_another_chain_is_longer():
    """The gemm would start after 45 us, and end at 57; the call returned at 52."""
    graph = drawn(TWO_KERNELS)
    of_gemm = launches(graph).head(1)
    scenario = hg.what_if(graph, hg.reweigh(of_gemm, lag_ns=45_000))

    assert graph.critical_path().segments["name"].tolist()[1:3] == ["copy", "copy"]
    assert scenario.critical_path().segments["name"].tolist()[:2] == ["gemm", "gemm"]
    assert scenario.dur_ns == graph.dur_ns + 5_000
    assert str(scenario.changes[0]) == "reweigh(1 edge, lag_ns=45000)"


def test_rows_of_another_graph_are_refused():
    """Row 7 of any graph is there, but it is another edge."""
    graph, other = drawn(TWO_KERNELS), drawn("cpu 1 |[aten::mm [launch >a]]\nstream 7 |  [k <a]")

    for rows in (launches(graph).head(1), launches(other).head(0)):
        with pytest.raises(QueryError, match="the graph does not have these"):
            hg.what_if(other, hg.reweigh(rows, by=2)).dur_ns  # noqa: B018


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("lunch", "no kind of edge, and no rule, is 'lunch'. Hint: did you mean 'launch'"),
        ("queue", "no edge is of 'queue'"),
    ],
)
def test_edges_that_are_not_there_are_named(label, said):
    with pytest.raises(QueryError) as found:
        hg.what_if(drawn(TWO_KERNELS), hg.reweigh(label, by=2)).dur_ns  # noqa: B018
    assert said in str(found.value)


@pytest.mark.parametrize(
    "weight", [{}, {"by": 1, "lag_ns": 1}, {"by": 1.1e6}, {"by": -1}, {"lag_ns": 11 * 10**14}]
)
def test_a_weight_is_a_factor_or_a_time(weight):
    """One of them, and within the range of times."""
    with pytest.raises(QueryError, match="reweigh: "):
        hg.reweigh("launch", **weight)


def test_only_a_table_of_edges_has_edges():
    with pytest.raises(QueryError, match="these are no edges"):
        hg.reweigh(drawn(TWO_KERNELS).events, by=2)


def test_fused_kernels_follow_each_other_at_once():
    """The second launch takes no time, nor does the gap: it ends 5 us earlier, and the call."""
    graph = drawn("""
        us       |0         10        20        30
        cpu 1    |[launch >a][launch >b]  [sync @*   ]
        stream 7 |           [add <a ]     [mul <b ]
    """)

    assert saved_us(graph, hg.fuse("add", "mul")) == 5
    assert saved_us(graph, hg.fuse("add", "mul")) == saved_us(
        graph, hg.fuse(graph.select(kind="kernel"))
    )


def test_overlapped_work_lets_the_rest_of_its_stream_go_on():
    """The third kernel is behind the first and its own launch, which began 6 us before at least."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |      [gemm <a         ][nccl <b][gemm <c          ]
    """)

    assert saved_us(graph, hg.overlap("nccl")) == 5


def test_what_waited_through_moved_work_waits_for_what_that_waited_for():
    """B and D waited for A through the copy: both start when A ends at 56, not when launched."""
    graph = drawn(
        """
        us        |0         10        20        30        40        50        60        70
        cpu 1     |[launch >a][launch >c][record !r @7][launch >b]
        cpu 2     |                                    [wait ?r @20][launch >d]
        stream 7  |      [A <a                                            ][C <c    ][B <b    ]
        stream 20 |                                                                  [D <d    ]
        """,
        names={"C": "Memcpy HtoD"},
    )

    assert _begin_us(hg.what_if(graph, hg.overlap("Memcpy HtoD")).graph) == {
        "A": 6,
        "B": 56,
        "D": 56,
        "Memcpy HtoD": 56,
    }


def test_work_that_waited_for_many_streams_passes_that_on():
    """The copy waited for forty kernels; B, behind it, still starts after the last of them."""
    streams = range(10, 50)
    calls = "".join(f"[launch >k{n}][record !r{n} @{n}][wait ?r{n} @7]" for n in streams)
    ends = len(calls) + 30
    kernels = "".join(f"stream {n} |[k{n} <k{n}{' ' * (ends + n)}]\n" for n in streams)
    graph = drawn(
        f"cpu 1 |{calls}[launch >c][launch >b]\n{kernels}"
        f"stream 7 |{' ' * (ends + 80)}[C <c          ][B <b ]\n",
        names={"C": "Memcpy HtoD"},
    )
    begins = _begin_us(hg.what_if(graph, hg.overlap("Memcpy HtoD")).graph)
    events = graph.dag.events
    last_us = events.end_ns[events.named(events.symbols.searched("^k49$"))].max() / 1000

    assert 0 <= begins["B"] - last_us <= graph.dag.calibration.stream_usual_ns / 1000


def test_moved_work_of_one_stream_stays_in_order():
    """The second copy no longer has A between itself and the first; it still follows that."""
    graph = drawn(
        """
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >a][launch >c][launch >b]
        stream 7 |      [one <a                         ][A <c ][two <b          ]
        """,
        names={"one": "Memcpy HtoD", "two": "Memcpy DtoH"},
    )

    assert _begin_us(hg.what_if(graph, hg.overlap("Memcpy*")).graph) == {
        "Memcpy HtoD": 6,
        "A": 17,
        "Memcpy DtoH": 39,
    }


def _begin_us(graph: hg.TraceGraph) -> dict[str, float]:
    """When each piece of device work begins, by name."""
    events = graph.dag.events
    work = events.is_device
    return dict(zip(events.names()[work].tolist(), events.ts_ns[work] / 1000, strict=True))


@pytest.mark.parametrize("change", [hg.overlap("aten::mm"), hg.fuse("gemm", "norm")])
def test_where_no_device_work_is_changed_that_is_said(change):
    """An operator is no work of the device; and those two kernels do not follow each other."""
    graph = drawn("""
        us       |0         10        20        30        40
        cpu 1    |[aten::mm [launch >a]][launch >b]
        stream 7 |                 [norm <a][gemm <b   ]
    """)

    with pytest.raises(QueryError):
        hg.what_if(graph, change).dur_ns  # noqa: B018
