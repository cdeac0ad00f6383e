"""What would help, and by how much: predictions on drawn and simulated runs."""

from __future__ import annotations

import pandas as pd
import pytest

import htagraph as hg
from htagraph.queries import cost as room
from htagraph.queries.cost import opportunities
from htagraph.replay.candidates import Candidate
from htagraph.replay.changes import scale
from htagraph.replay.charges import Charges
from htagraph.replay.predictions import Trials
from htagraph.replay.rehearsal import Rehearsal
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def graph_of(drawing: str) -> hg.TraceGraph:
    return hg.Trace.from_events(timeline(drawing)).compile()


def simulated(fault: str) -> hg.TraceGraph:
    return hg.Trace.from_events(simulate(training_rank(fault=fault)).events).compile()


@pytest.fixture(scope="module")
def loading() -> hg.TraceGraph:
    return simulated("dataloader")


def test_a_kernel_is_asked_about_at_four_speeds():
    """One kernel of 21 us, waited for; without it, the call that launched it still takes 13 us."""
    graph = graph_of("""
        cpu 1    |[launch >a]   [sync @*    ]
        stream 7 |      [gemm <a            ]
    """)

    found = graph.opportunities().query("kind == 'kernel'").set_index("left_share")["saves_ns"]

    assert found.to_dict() == {0.0: 13_000, 0.5: 10_500, 0.75: 5_250, 0.9: 2_100}


def test_what_was_planted_costs_most(loading):
    """Of all causes; that workers load ahead is among the changes."""
    found = loading.opportunities()

    assert found.iloc[0][["kind", "cause"]].tolist() == ["cause", "data loading"]
    assert found.query("kind == 'data loading'")["change"].tolist() == ["prefetch()"]


def test_causes_asked_alone_cost_what_they_cost_among_all_changes(loading):
    """A verdict replays no other changes."""
    alone, among = loading.critical_path().trials.causes, loading.opportunities()

    assert set(alone["kind"]) == {"cause"}
    told = ["kind", "cause", "change", "left_share", "saves_ns", "low_ns", "high_ns", "alone_ns"]
    of_causes = among[among["cause"] != ""]
    pd.testing.assert_frame_equal(alone[told], of_causes[told].reset_index(drop=True))


def test_several_at_once_find_what_one_after_the_other_do(loading):
    """Large traces are replayed by two threads; what was found is not asked again."""
    rehearsal = Rehearsal(loading.dag, loading.interval)
    asked = [
        Candidate("operator", name, (scale(name, by=0.5),), 0.5)
        for name in ("aten::linear", "aten::addmm", "no such operator")
    ]

    def charges() -> Charges:
        return Charges.of(loading.dag, rehearsal.replay)

    alone, beside = (
        Trials(rehearsal, charges, lambda _: (), lambda: asked, n_threads).opportunities
        for n_threads in (1, 2)
    )

    assert len(alone)
    pd.testing.assert_frame_equal(alone, beside)


def test_an_expected_saving_lies_in_its_interval(loading):
    found = loading.opportunities()

    assert (found["low_ns"] <= found["saves_ns"]).all()
    assert (found["saves_ns"] <= found["high_ns"]).all()
    assert (found["saves_ns"] <= loading.dur_ns).all()


def test_a_kernel_saves_no_more_than_another_leaves():
    """Two kernels on two streams, both waited for, one 2 us longer."""
    graph = graph_of("""
        cpu 1    |[launch >a][launch >b]  [sync @*     ]
        stream 7 |              [gemm <a               ]
        stream 9 |              [conv <b             ]
    """)

    found = graph.opportunities().query("left_share == 0 and kind == 'kernel'")

    assert found["saves_ns"].tolist() == [2_000]


def test_nothing_recorded_has_no_opportunities():
    graph = graph_of("cpu 1 |[aten::mm]")

    assert opportunities(graph.dag, hg.Trace.from_events(timeline("")).compile().interval).empty


@pytest.mark.parametrize("launch", ["cudaLaunchKernel", "cudaGraphLaunch"])
@pytest.mark.parametrize("loader", ["_SingleProcess", "_MultiProcessing"])
def test_what_the_run_has_had_already_is_no_opportunity(launch, loader):
    """Replayed work is not replayed, and what workers load ahead is not prefetched."""
    drawing = """
        cpu 1    |{load      }[launch >a    ]{load      }[launch >b    ]{load      }[launch >c    ]
        stream 7 |                       [k <a      ]            [k <b       ]         [k <c       ]
    """
    names = {"load": f"enumerate(DataLoader)#{loader}DataLoaderIter.__next__", "launch": launch}
    graph = hg.Trace.from_events(timeline(drawing, names=names)).compile()

    kinds = set(graph.opportunities()["kind"])

    assert ("launches" in kinds) is (launch == "cudaLaunchKernel")
    assert ("data loading" in kinds) is (loader == "_SingleProcess")


def recurring(names: str) -> hg.TraceGraph:
    """Kernels that a host launches one by one, in this order."""
    host = "".join(f"[launch >{number:03}  ]" for number in range(len(names)))
    work = "".join(f"     [{name} <{number:03}   ]" for number, name in enumerate(names))
    return graph_of(f"""
        cpu 1    |{host}
        stream 7 |      {work}
    """)


@pytest.mark.parametrize(("large", "n_fusions"), [(1_000_000, 5), (0, 2)])
def test_five_sequences_are_fused(large, n_fusions, monkeypatch):
    """Of a dozen pairs that recur; in a large graph two."""
    monkeypatch.setattr(room, "LARGE", large)
    found = recurring("".join(2 * f"{a}{a.upper()}" for a in "abcdefghijkl")).opportunities()

    assert (found["kind"] == "fusion").sum() == n_fusions


@pytest.mark.parametrize(("names", "is_fused"), [("abcdefgh", True), ("abcdefghijkl", False)])
def test_up_to_eight_kernels_are_fused(names, is_fused):
    """Of eight that recur, or twelve."""
    assert ("fusion" in set(recurring(2 * names).opportunities()["kind"])) is is_fused
