"""Where most of the time of DataLoaders goes: more than half decides."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.lookup.programs import find_loading
from htagraph.run.compiled import LoadOptions
from htagraph.synth import timeline

ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("first", "second", "loading"),
    [(WORKERS, ALONE, "by workers"), (ALONE, WORKERS, "in process")],
)
def test_of_two_loaders_the_one_that_takes_longer_counts(first, second, loading):
    """11 of 21 us."""
    events = timeline("cpu 1 |{first    }{second  }", names={"first": first, "second": second})

    assert find_loading(compile_events(events)) == loading


@pytest.mark.parametrize(
    ("drawing", "loading"),
    [
        ("cpu 1 |{load              }\ncpu 1 |   [collate  ]", "after workers"),
        ("cpu 1 |{load              }\ncpu 1 |   [collate]", "by workers"),
        ("cpu 1 |{load              }\ncpu 2 |   [pin      ]", "pinned by a thread"),
        ("cpu 1 |{load              }\ncpu 2 |   [pin    ]", "by workers"),
        ("cpu 1 |{load              }\ncpu 1 |                     [pin      ]", "by workers"),
    ],
)
def test_what_follows_the_workers_counts_if_it_takes_most_of_the_time(drawing, loading):
    """11 or 9 of 20 us: operators in the step, or a thread that pins."""
    names = {"load": WORKERS} | ({"pin": "aten::pin_memory"} if "pin" in drawing else {})

    assert find_loading(compile_events(timeline(drawing, names=names))) == loading


OWN = """
    cpu 1 |{get_rows         }[aten::mm  ]
    cpu 1 |  [aten::index ]
"""


def loading_ns(graph: hg.TraceGraph) -> int:
    return int(graph.critical_path().breakdown()["dur_ns"].get("data_loading", 0))


def test_ranges_of_a_users_own_names_load_data(tmp_path):
    """19 us, with the operator in them; saved graphs and their workers know it."""
    trace = hg.Trace.from_events(timeline(OWN))
    graph = trace.compile(data_loading=["get_*"])
    opened = hg.TraceGraph.open(graph.save(tmp_path / "graph"))

    assert (loading_ns(trace.compile()), loading_ns(graph), loading_ns(opened)) == (
        0,
        19_000,
        19_000,
    )
    assert loading_ns(trace.compile(data_loading="get_*")) == 19_000
    assert graph.dag.data_loading == opened.dag.data_loading == ("get_*",)
    assert hg.what_if(graph, hg.without("data loading")).dur_ns == 12_000


def test_a_project_names_its_ranges_that_load_data(tmp_path, monkeypatch):
    """In the pyproject.toml of the working directory; an argument wins."""
    (tmp_path / "pyproject.toml").write_text('[tool.htagraph]\ndata-loading = ["get_*"]\n')
    monkeypatch.chdir(tmp_path)
    trace = hg.Trace.from_events(timeline(OWN))

    assert loading_ns(trace.compile()) == 19_000
    assert loading_ns(trace.compile(data_loading=())) == 0
    assert LoadOptions().data_loading == ("get_*",)


def test_names_of_ranges_are_a_list(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.htagraph]\ndata-loading = "get_*"\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(QueryError, match="data-loading is no list of names"):
        hg.Trace.from_events(timeline(OWN)).compile()


def test_ranks_of_a_job_know_the_names_too():
    """The demo's optimizer, on each rank."""
    job = hg.load_job(hg.demo_trace("job"), data_loading=["Optimizer.step*"])

    assert job.map(loading_ns)[0] > 0
