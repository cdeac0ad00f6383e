"""What another thread ran while a thread ran code that is not recorded, or waited."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph import Trace
from htagraph.compiler.passes import compile_events
from htagraph.explain.segment_pieces import meanwhile
from htagraph.findings.window_bounds import find_bounds
from htagraph.synth import timeline

_US = 1_000
REQUEST = """
    cpu 1 |{request                                                     }
    cpu 2 |              [aten::sort                      ][aten::add]
"""


def evidence(drawing: str) -> str:
    """The first evidence of the first finding."""
    path = Trace.from_events(timeline(drawing)).compile().critical_path()
    return find_bounds(path).findings[0].evidence[0].label


def ran(drawing: str, since_us: int, until_us: int) -> str:
    """What another thread than the first ran in a stretch of time."""
    dag = compile_events(timeline(drawing))
    lane = np.array([dag.events.lane[dag.events.ts_ns.argmin()]], np.int64)
    (found,) = meanwhile(dag, lane, np.array([since_us * _US]), np.array([until_us * _US]))
    return str(found)


def test_recorded_work_of_another_thread_is_no_unrecorded_code():
    """One request shows no recurrence, so it is open who waited for whom."""
    assert evidence(REQUEST) == "code or a wait in request, while thread 2 ran aten::sort"


def test_code_while_no_other_thread_works_is_unrecorded():
    """The other thread ran before."""
    drawing = """
        cpu 1 |[aten::mm        ]{request                                   }
        cpu 2 |    [aten::sort ]
    """
    assert evidence(drawing) == "untraced code in request"


@pytest.mark.parametrize(("until_us", "text"), [(27, "thread 2 ran work"), (28, "")])
def test_another_thread_ran_meanwhile_if_it_did_for_most_of_the_time(until_us, text):
    """Its operator takes 14 us."""
    drawing = """
        cpu 1 |[a]                          [b]
        cpu 2 |    [work        ]
    """
    assert ran(drawing, 0, until_us) == text


def test_of_several_threads_the_busiest_is_named_with_what_took_it_longest():
    """Not by its longest operator, and without what is inside of operators."""
    drawing = """
        cpu 1 |[a]                              [b]
        cpu 2 |    [long           ]
        cpu 3 |    [x    ][other    ][x    ][x    ]
        cpu 3 |            [inner  ]
    """
    assert ran(drawing, 3, 33) == "thread 3 ran x"


def test_a_range_of_another_thread_is_no_work():
    """It may wait, too."""
    drawing = """
        cpu 1 |[a]                          [b]
        cpu 2 |    {range                }
    """
    assert ran(drawing, 3, 29) == ""


def test_an_operator_that_still_runs_was_not_waited_for():
    """It may itself be what waits."""
    drawing = """
        cpu 1 |[a]                          [b]
        cpu 2 | [work                         ]
    """
    assert ran(drawing, 3, 29) == ""
