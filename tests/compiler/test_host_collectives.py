"""FLOW edges of collectives that a worker thread of the host runs (gloo)."""

from __future__ import annotations

import pytest

from htagraph.explain.critical_path import critical_path
from htagraph.model.dag import Dag
from htagraph.queries.communication import collectives
from tests.drawn import drawn_dag


def bounds(dag: Dag) -> list[tuple[str, str, int]]:
    """Bound, name and microseconds of the path; equal neighbors are one."""
    out: list[tuple[str, str, int]] = []
    path = critical_path(dag, dag.span)
    for bound, name, dur in zip(path["bound"], path["name"], path["dur_ns"], strict=True):
        if out and out[-1][:2] == (bound, name):
            out[-1] = (bound, name, out[-1][2] + int(dur) // 1000)
        else:
            out.append((str(bound), str(name), int(dur) // 1000))
    return out


def test_the_caller_waits_for_the_collective_that_it_called(arrows):
    """It records nothing until the worker's range has ended: that is communication, no Python."""
    dag = drawn_dag("""
        cpu 1    |[c10d::allreduce_]                              [aten::add_]
        cpu 2    |   {gloo:all_reduce                          }
    """)

    assert arrows(dag, "flow") == [
        ("c10d::allreduce_<", "gloo:all_reduce<", 0),
        ("gloo:all_reduce>", "aten::add_<", 0),
    ]
    assert bounds(dag) == [
        ("untraced_code", "gloo:all_reduce", 3),
        ("communication", "gloo:all_reduce", 43),
        ("untraced_code", "(host gap)", 2),
        ("host", "aten::add_", 12),
    ]


def test_work_beside_a_collective_is_no_wait(arrows):
    """The caller computes while a worker reduces, and goes on long after: it waited for nothing."""
    dag = drawn_dag("""
        cpu 1    |[c10d::allreduce_] [aten::mm                            ]         [aten::add_]
        cpu 2    |   {gloo:all_reduce                          }
    """)

    assert arrows(dag, "flow") == [("c10d::allreduce_<", "gloo:all_reduce<", 0)]


def test_a_gap_that_goes_on_long_after_the_collective_may_be_its_own(arrows):
    """Nothing says that the caller waited from the second operator on: the time stays Python's."""
    dag = drawn_dag("""
        cpu 1    |[c10d::allreduce_] [aten::mm]                                     [aten::add_]
        cpu 2    |   {gloo:all_reduce                          }
    """)

    assert arrows(dag, "flow") == [("c10d::allreduce_<", "gloo:all_reduce<", 0)]


def test_the_reducer_of_ddp_waits_before_it_copies_a_bucket(arrows):
    """What needs the result waited for it, however long it took to wake."""
    dag = drawn_dag(
        """
        cpu 1    |[c10d::allreduce_] [aten::mm]                                     [copies    ]
        cpu 2    |   {gloo:all_reduce                          }
    """,
        names={"copies": "torch.distributed.ddp.reducer::copy_bucket_to_grad"},
    )

    assert ("gloo:all_reduce>", "torch.distributed.ddp.reducer::copy_bucket_to_grad<", 0) in arrows(
        dag, "flow"
    )


def test_calls_and_ranges_are_paired_by_order_and_operation():
    """A reduce-scatter runs as an all-reduce; the first range is of a call before the capture."""
    dag = drawn_dag("""
        cpu 1    |          [c10d::allgather_][c10d::_reduce_scatter_base_][c10d::allreduce_]
        cpu 2    |{gloo:all_gather}              {gloo:all_reduce A                    }
        cpu 3    |               {gloo:all_gather B            }                   {gloo:all_reduce}
    """)

    found = collectives(dag)
    assert found["operation"].tolist() == [
        "all_gather",
        "all_gather",
        "reduce_scatter",
        "all_reduce",
    ]
    assert found["is_rendezvous"].all()


def test_a_call_that_launches_kernels_is_no_collective_of_the_host(arrows):
    """NCCL takes the call; the range of another group's worker is not its."""
    dag = drawn_dag("""
        cpu 1    |[c10d::allreduce_ {nccl:all_reduce}]                            [aten::add_]
        cpu 2    |   {gloo:all_reduce                                          }
    """)

    assert arrows(dag, "flow") == []


def test_a_send_begins_with_its_call():
    """The range begins after the data have gone; the call is what a receiver waits for."""
    dag = drawn_dag("""
        cpu 1    |[c10d::send  {gloo:send}]
    """)

    found = collectives(dag)
    assert found[["operation", "start_ns"]].to_numpy().tolist() == [["send", 0]]


def test_between_a_receive_and_its_wait_the_caller_may_work():
    """Only the last stretch of the range is the wait."""
    dag = drawn_dag("""
        cpu 1    |{gloo:recv           [aten::mm     ]                      }[aten::add_]
    """)

    assert bounds(dag) == [
        ("untraced_code", "gloo:recv", 21),
        ("host", "aten::mm", 15),
        ("communication", "gloo:recv", 23),
        ("host", "aten::add_", 12),
    ]


@pytest.mark.parametrize("backend", ["gloo", "mpi", "ucc"])
def test_backends_of_the_host_are_known_by_their_ranges(backend):
    """As PyTorch names them."""
    dag = drawn_dag(f"cpu 2    |{{{backend}:all_reduce   }}")

    assert collectives(dag)["found_by"].tolist() == ["host range"]


@pytest.mark.parametrize(("late_us", "is_wait"), [(0, True), (10, True), (11, False)])
def test_a_caller_that_waited_continues_within_a_tenth_of_its_gap(arrows, late_us, is_wait):
    """The range ends 100 us into the gap."""
    dag = drawn_dag(f"""
        cpu 1    |[c10d::allreduce_][aten::mm]{"":{100 + late_us}}[aten::add_]
        cpu 2    |   {{gloo:all_reduce{"":108}}}
    """)

    assert (("gloo:all_reduce>", "aten::add_<", 0) in arrows(dag, "flow")) == is_wait


def caller_continues(early_us: int, works: str = "") -> str:
    """A range of 100 us, in which the caller works or waits, and before whose end it continues."""
    return f"""
        cpu 1    |[c10d::allreduce_]{works:{100 - early_us}}[aten::add_              ]
        cpu 2    |                  {{gloo:all_reduce{"":83}}}
    """


def test_a_range_ends_where_its_caller_continues(arrows):
    """A worker that was descheduled ends its range late; the collective is done 8 us before."""
    dag = drawn_dag(caller_continues(8))

    assert arrows(dag, "flow") == [
        ("c10d::allreduce_<", "gloo:all_reduce<", 0),
        ("gloo:all_reduce>", "aten::add_<", 0),
    ]
    assert bounds(dag)[:2] == [
        ("untraced_code", "gloo:all_reduce", 18),
        ("communication", "gloo:all_reduce", 92),
    ]


def cut_ranges(dag: Dag) -> int:
    """How many ranges end earlier than recorded."""
    return dag.notes["n_cut_ranges"]


@pytest.mark.parametrize(
    ("drawing", "n_cut", "why"),
    [
        (caller_continues(10), 1, "a tenth of the range"),
        (caller_continues(11), 0, "more than a tenth of it"),
        (caller_continues(10, f"[aten::mm{'':30}]"), 1, "it waits for 51 us of 100"),
        (caller_continues(10, f"[aten::mm{'':32}]"), 0, "it waits for 49 us of 100"),
    ],
)
def test_a_caller_that_waited_continues_soon_before_the_range_ends(drawing, n_cut, why):
    """If it waited for most of the range, and for most of its end."""
    assert cut_ranges(drawn_dag(drawing)) == n_cut, why


@pytest.mark.parametrize(("works_us", "n_cut"), [(5, 1), (4, 0)])
def test_a_caller_that_continues_may_wait_again(works_us, n_cut):
    """It continues 9 us before the range ends, and works for 5 or 4 of them until it copies."""
    dag = drawn_dag(
        f"""
        cpu 1    |[c10d::allreduce_]{"":91}[{"a":{works_us - 2}}]{"":12}[copies]
        cpu 2    |                  {{gloo:all_reduce{"":83}}}
        """,
        names={"copies": "torch.distributed.ddp.reducer::copy_bucket_to_grad"},
    )

    assert cut_ranges(dag) == n_cut


def test_a_caller_that_waited_for_another_range_did_not_wait_for_this_one(arrows):
    """Two buckets at once: it continues 2 us after A has ended, and B ends later."""
    dag = drawn_dag("""
        cpu 1    |[c10d::allreduce_][c10d::allreduce_]                          [aten::add_     ]
        cpu 2    |   {gloo:all_reduce A                                      }
        cpu 3    |                    {gloo:all_reduce B                           }
    """)

    assert cut_ranges(dag) == 0
    assert ("gloo:all_reduce A>", "aten::add_<", 0) in arrows(dag, "flow")


def test_a_range_encloses_what_it_enclosed():
    """Its worker did something after the caller continues: the range is not cut."""
    drawing = caller_continues(8).rstrip() + "\n        cpu 2    |" + " " * 104 + "[aten::to]"

    assert cut_ranges(drawn_dag(drawing)) == 0


def test_views_of_the_result_need_no_values(arrows):
    """DDP makes views of a bucket before it copies from them, however late it wakes."""
    dag = drawn_dag(
        """
        cpu 1    |[c10d::allreduce_] [aten::mm]                            [view ][view ][copies ]
        cpu 2    |   {gloo:all_reduce                          }
    """,
        names={
            "view": "aten::as_strided",
            "copies": "torch.distributed.ddp.reducer::copy_bucket_to_grad",
        },
    )

    assert ("gloo:all_reduce>", "aten::as_strided<", 0) in arrows(dag, "flow")
