"""The first work recorded on a device, which waits for what was from before the profile."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.model.dag import Dag
from htagraph.synth import timeline

FAR = " " * 1_500


def compiled(drawing: str) -> Dag:
    return compile_events(timeline(drawing))


def bounds(dag: Dag) -> dict[str, int]:
    path = critical_path(dag, dag.span)
    return (path.groupby("bound", observed=True)["dur_ns"].sum() // 1_000).to_dict()


def test_first_work_long_after_its_launch_waits_for_what_the_capture_did_not_see(arrows):
    """Until k1 starts, the path is what was launched before; the tiny copy changes nothing."""
    dag = compiled(
        f"""
        cpu 1    |[cudaMemcpyAsync >c][launch >a][launch >b]
        stream 2 |                  [Memcpy <c]
        stream 7 |{FAR}[k1 <a    ][k2 <b]
        """
    )

    assert arrows(dag, "source") == [("cudaMemcpyAsync<", "k1<", 1_500)]
    assert bounds(dag) == {"compute": 18, "work_from_before_the_profile": 1_500}


def test_its_segment_says_by_which_rule():
    """An inferred one, unlike that of work whose launch was not recorded."""
    dag = compiled(f"cpu 1    |[launch >a]\nstream 7 |{FAR}[k1 <a    ]")
    path = critical_path(dag, dag.span)

    assert path["rule"].astype(str).tolist() == ["first device work", "duration"]


def test_a_wait_for_the_device_that_returned_says_that_it_was_idle(arrows):
    """Then something else holds k1 up, and nothing says what."""
    dag = compiled(
        f"""
        cpu 1    |[launch >a][cudaDeviceSynchronize]
        stream 7 |{FAR}[k1 <a    ]
        """
    )

    assert arrows(dag, "source") == []
    assert "unknown_waits" in bounds(dag)


@pytest.mark.parametrize(("call_us", "is_source"), [(100, True), (1_511, False), (1_600, False)])
def test_a_slow_launch_call_is_what_its_work_waited_for(arrows, call_us, is_source):
    """The work starts after 1.5 ms: long after its call returned, right then, or while it runs."""
    dag = compiled(
        f"""
        cpu 1    |[launch >a{"":{call_us - 11}}][launch >b]
        stream 7 |{"":1511}[k1 <a    ][k2 <b]
        """
    )

    assert bool(arrows(dag, "source")) == is_source


def test_work_that_was_launched_late_is_late_by_its_launch(arrows):
    """The host worked for most of the time before k1; that it then took 300 us is another thing."""
    dag = compiled(
        f"""
        cpu 1    |[aten::load{FAR}][launch >a]
        stream 7 |{FAR}{" " * 300}[k1 <a    ]
        """
    )

    assert arrows(dag, "source") == []


@pytest.mark.parametrize(("load_us", "found"), [(270, [("aten::load<", "k1<", 600)]), (320, [])])
def test_the_wait_for_unseen_work_is_half_of_the_time_before_it(arrows, load_us, found):
    """Of 600 us, the host works for 270 or 320, and a launch takes at least 22."""
    dag = compiled(
        f"""
        cpu 1    |{"":50}[aten::load{"":{load_us - 12}}][launch >a]
        stream 7 |{"":650}[k1 <a    ]
        """
    )

    assert arrows(dag, "source") == found


def test_a_device_that_was_busy_with_recorded_work_was_not_busy_with_other(arrows):
    """Half of the wait is explained by k0: what the rest is, is not known."""
    dag = compiled(
        f"""
        cpu 1    |[launch >z][launch >a]
        stream 9 |         [k0 <z{FAR}]
        stream 7 |{FAR}{FAR}[k1 <a    ]
        """
    )

    assert arrows(dag, "source") == []


def test_work_whose_launch_is_not_known_is_not_late_by_it(arrows):
    """It may have been launched at any time."""
    dag = compiled(
        f"""
        cpu 1    |[launch >a]
        stream 7 |[k0 <a]{FAR}[k1    ]
        """
    )

    assert arrows(dag, "source") == []


@pytest.mark.parametrize(("busy_us", "is_source"), [(110, True), (220, False)])
def test_recorded_work_may_fill_a_tenth_of_the_wait(arrows, busy_us, is_source):
    """The wait is of 1.5 ms."""
    dag = compiled(
        f"""
        cpu 1    |[launch >z][launch >a]
        stream 9 |         [k0 <z{"":{busy_us}}]
        stream 7 |{FAR}[k1 <a    ]
        """
    )

    assert bool(arrows(dag, "source")) == is_source
