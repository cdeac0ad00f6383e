"""FLOW edges: forward to backward, and threads that work for others."""

from __future__ import annotations

import pytest


def test_a_backward_operator_comes_after_its_forward_operator(compiled, arrows):
    """The file's fwdbwd flow joins the two."""
    dag = compiled("""
        cpu 1    |[aten::mm ~>f]
        cpu 2    |                  [MmBackward0 ~<f]
    """)

    assert ("aten::mm>", "MmBackward0<", 0) in arrows(dag, "flow")


def test_each_pair_of_operators_has_its_own_flow(compiled, arrows):
    """Backward runs in the opposite order."""
    dag = compiled("""
        cpu 1    |[aten::mm ~>f][aten::add ~>g]
        cpu 2    |                               [AddBackward0 ~<g][MmBackward0 ~<f]
    """)

    assert arrows(dag, "flow") == [
        ("aten::add>", "AddBackward0<", 0),
        ("aten::mm>", "MmBackward0<", 0),
    ]


def test_the_caller_of_backward_waits_for_the_autograd_thread(compiled, arrows):
    """The caller records nothing while autograd runs: it hands over and gets back."""
    dag = compiled("""
        cpu 1    |[aten::mm ~>f]                                          [Optimizer.step]
        cpu 2    |                  [MmBackward0 ~<f] [AccumulateGrad]
    """)

    assert arrows(dag, "flow") == [
        ("AccumulateGrad>", "Optimizer.step<", 0),
        ("aten::mm>", "MmBackward0<", 0),
        ("aten::mm>", "MmBackward0<", 0),
    ]
    assert ("aten::mm>", "Optimizer.step<", 0) in arrows(dag, "thread")


def test_an_autograd_thread_is_known_by_what_it_begins_with(compiled, arrows):
    """Hooks of gradients run on it, too, and may be more than the functions."""
    dag = compiled("""
        cpu 1    |[aten::mm]                                                                  [step]
        cpu 2    |           [AddmmBackward0][aten::item][aten::select][aten::select][aten::item]
    """)

    assert ("aten::mm>", "AddmmBackward0<", 0) in arrows(dag, "flow")


def test_a_caller_that_runs_a_function_itself_waits_again(compiled, arrows):
    """Parameters on the host are the caller's: it runs their function, then waits for the end."""
    dag = compiled("""
        cpu 1    |[aten::mm]                 [AccumulateGrad]                                 [step]
        cpu 2    |           [AddmmBackward0]  [MmBackward0      ][ReluBackward0][TBackward0]
    """)

    assert arrows(dag, "flow") == [
        ("AddmmBackward0>", "AccumulateGrad<", 0),
        ("TBackward0>", "step<", 0),
        ("aten::mm>", "AddmmBackward0<", 0),
    ]


def test_a_worker_that_was_idle_begins_another_burst_after_the_callers_function(compiled, arrows):
    """The autograd thread starts after the caller's own function: nothing went on beside it."""
    dag = compiled("""
        cpu 1    |[aten::mm]                 [AccumulateGrad]                                 [step]
        cpu 2    |           [AddmmBackward0]                  [ReluBackward0][TBackward0]
    """)

    assert arrows(dag, "flow") == [
        ("AccumulateGrad>", "ReluBackward0<", 0),
        ("AddmmBackward0>", "AccumulateGrad<", 0),
        ("TBackward0>", "step<", 0),
        ("aten::mm>", "AddmmBackward0<", 0),
    ]


def test_a_caller_between_two_functions_of_its_own_waits_for_the_one_that_runs(compiled, arrows):
    """The worker begins nothing in that gap; its function is under way, and its end is the news."""
    dag = compiled("""
        cpu 1    |[aten::mm]                 [AccumulateGrad]       [AccumulateGrad]             [s]
        cpu 2    |           [AddmmBackward0]  [MmBackward0       ]                  [TBackward0]
    """)

    assert arrows(dag, "flow") == [
        ("AccumulateGrad>", "TBackward0<", 0),
        ("AddmmBackward0>", "AccumulateGrad<", 0),
        ("MmBackward0>", "AccumulateGrad<", 0),
        ("TBackward0>", "s<", 0),
        ("aten::mm>", "AddmmBackward0<", 0),
    ]


def test_a_thread_that_steps_the_profiler_is_a_caller(compiled, arrows):
    """A capture may begin inside of a backward pass that its own thread runs."""
    dag = compiled("""
        cpu 1    |[AddmmBackward0]  {ProfilerStep#1           }
        cpu 2    |[aten::a]                                     [aten::b]
    """)

    assert arrows(dag, "flow") == []


def test_autograd_threads_are_known_by_name_where_the_file_has_no_flows(compiled, arrows):
    """Older files have no fwdbwd flows; their operators are still called backward."""
    dag = compiled("""
        cpu 1    |[aten::mm]                                                       [step]
        cpu 2    |             [AddmmBackward]    [torch::autograd::AccumulateGrad]
    """)

    assert arrows(dag, "flow") == [
        ("aten::mm>", "AddmmBackward<", 0),
        ("torch::autograd::AccumulateGrad>", "step<", 0),
    ]


def test_the_last_event_of_a_burst_may_end_after_it_woke_the_caller(compiled, arrows):
    """The last callback wakes the caller, then cleans up: the caller resumed before that."""
    dag = compiled("""
        cpu 1    |[aten::mm]                                                               [step]
        cpu 2    |             [AddmmBackward]    [AccumulateGrad        [inner]            ]
    """)

    assert arrows(dag, "flow") == [("aten::mm>", "AddmmBackward<", 0), ("inner>", "step<", 0)]


@pytest.mark.parametrize(("more", "n_handoffs"), [("", 2), ("[aten::add]", 0)])
def test_a_thread_that_runs_mostly_autograd_functions_is_an_autograd_thread(
    compiled, arrows, more, n_handoffs
):
    """Two functions are more than half of three operators, and no more than half of four."""
    dag = compiled(f"""
        cpu 1    |[aten::mm]{"":80}[step]
        cpu 2    |           [aten::item][AddmmBackward0][MmBackward0]{more}
    """)

    assert len(arrows(dag, "flow")) == n_handoffs


def test_autograd_works_for_the_thread_whose_operators_it_takes_back(compiled, arrows):
    """Even if another thread runs more."""
    dag = compiled("""
        cpu 1    |[aten::mm ~>f]                    [step]
        cpu 2    |               [MmBackward0 ~<f]
        cpu 3    |[aten::a]                               [aten::b][aten::c][aten::d][aten::e]
    """)

    assert ("MmBackward0>", "step<", 0) in arrows(dag, "flow")


def test_autograd_without_flows_works_for_the_thread_that_runs_most(compiled, arrows):
    """Here not for the first one."""
    dag = compiled("""
        cpu 1    |[aten::a]                               [aten::b]
        cpu 2    |                     [MmBackward0]
        cpu 3    |[aten::mm][aten::mm]               [step]
    """)

    assert arrows(dag, "flow") == [("MmBackward0>", "step<", 0), ("aten::mm>", "MmBackward0<", 0)]


def test_a_thread_that_goes_on_working_was_not_waited_for(compiled, arrows):
    """Its work reaches far beyond the caller's gap, so the caller did not wait for it."""
    dag = compiled("""
        cpu 1    |[aten::mm]                                         [step]
        cpu 2    |             [AddmmBackward]    [torch::autograd::AccumulateGrad]
    """)

    assert arrows(dag, "flow") == []


def test_a_thread_without_any_sign_of_autograd_hands_over_nothing(compiled, arrows):
    """Two threads that happen to alternate are not known to wait for each other."""
    dag = compiled("""
        cpu 1    |[aten::mm]                   [aten::add]
        cpu 2    |             [pin_memory  ]
    """)

    assert arrows(dag, "flow") == []


@pytest.mark.parametrize(("overhang_us", "n_handoffs"), [(7, 2), (14, 0)])
def test_the_last_event_ends_within_a_tenth_of_the_burst_after_the_gap(
    compiled, arrows, overhang_us, n_handoffs
):
    """The burst is of 100 us."""
    dag = compiled(f"""
        cpu 1    |[aten::mm]{"":100}[step]
        cpu 2    |{"":10}[AddmmBackward{"":{85 + overhang_us}}]
    """)

    assert len(arrows(dag, "flow")) == n_handoffs
