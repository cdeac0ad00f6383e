"""HIDDEN_SYNC edges: a thread waits for device work in a gap that no call explains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.model.kinds import Cause, EventKind
from htagraph.synth import timeline

# Profilers leave cudaEventSynchronize out: the host stands still until k1 has ended.
_TIMED = """
    cpu 1    |[L >a][R         ]                                        [E         ][op            ]
    stream 7 |    [k1 <a                                             ]
"""
_NAMES = {"L": "cudaLaunchKernel", "R": "cudaEventRecord", "E": "cudaEventElapsedTime"}


def test_a_gap_before_an_elapsed_time_that_ends_with_device_work_is_a_wait(compiled, arrows, rules):
    """Elapsed time needs completed events, so its caller waited for them."""
    dag = compiled(_TIMED, names=_NAMES)

    assert arrows(dag, "hidden_sync") == [("k1>", "cudaEventElapsedTime<", 0)]
    assert rules(dag, "hidden_sync") == {"cudaEventElapsedTime<": "host polls"}


def test_the_gap_is_the_kernel_s_time_and_what_follows_is_charged_to_the_wait(compiled):
    """The host was blocked for 38 us, so what follows is charged to the wait for as long."""
    dag = compiled(_TIMED, names=_NAMES)
    segments = critical_path(dag, dag.span)
    by_bound = segments.groupby("bound", observed=True)["dur_ns"].sum()
    causes = attributed_time(dag, segments).groupby("cause")["dur_ns"].sum()

    assert by_bound["compute"] == 52_000
    assert "untraced_code" not in by_bound
    assert causes[Cause.GPU_SYNCHRONIZATION] == 30_000


def test_work_that_goes_on_behind_the_record_is_not_waited_for(compiled, arrows):
    """Only what was enqueued before the event record had to end."""
    dag = compiled(
        """
        cpu 1    |[L >a][R    ][L >b]                                  [E           ]
        stream 7 |    [k1 <a                                         ][k2 <b             ]
        """,
        names=_NAMES,
    )

    assert arrows(dag, "hidden_sync") == [("k1>", "cudaEventElapsedTime<", 0)]


def test_a_gap_that_ends_long_after_all_device_work_is_no_wait(compiled, arrows):
    """The host did something of its own for 70 us."""
    gap = " " * 80
    dag = compiled(
        f"""
        cpu 1    |[L >a][R         ]{gap}[E         ]
        stream 7 |    [k1 <a                    ]
        """,
        names=_NAMES,
    )

    assert arrows(dag, "hidden_sync") == []


def test_a_gap_before_another_call_is_no_wait(compiled, arrows):
    """A launch needs nothing completed: that it follows the end of a kernel is chance."""
    dag = compiled(_TIMED, names=_NAMES | {"E": "cudaEventQuery"})

    assert arrows(dag, "hidden_sync") == []


def test_mtia_synchronizes_by_other_names(rules):
    """``synchronizeStream`` calls ``synchronize``, and both wait for the work of their stream."""
    events = timeline(
        """
        cpu 1    |[L >a][synchronizeStream [synchronize                      ]]
        stream 7 |    [k1 <a                                             ]
        """,
        names={"L": "cudaLaunchKernel"},
    )
    calls = events.named(events.symbols.mask(lambda name: name.startswith("synchronize")))
    dag = compile_events(
        replace(events, kind=np.where(calls, EventKind.RUNTIME, events.kind).astype(np.int8))
    )

    assert rules(dag, "sync") == {
        "synchronize>": "call semantics",
        "synchronizeStream>": "call semantics",
    }
