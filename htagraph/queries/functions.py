"""What each function of the program costs the critical path, with all that it calls."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.errors import GraphError
from htagraph.explain.critical_path import path_segments
from htagraph.explain.stacks import Stacks, path_stacks
from htagraph.lookup.python_code import function_and_place
from htagraph.model.answers import FUNCTIONS
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

NO_FUNCTION = "(no function)"
"""Function of time that no frame of user code is around."""
EVERYWHERE = 0.9
"""Share of the window from which on a function tells nothing: all runs in it. Chosen. Pinned with
the next two by test_functions."""
_MOST = 0.5
"""More than this share is most of something."""
_N_REMOVED, _LEAST = 5, 0.001
"""Functions whose removal is tried, and the least share of the path of one, by own time. Chosen."""


def functions(dag: Dag, window: Window) -> pd.DataFrame:
    """Functions of user code with their time on the critical path; most own time first.

    ::

        train.py(9): step     [                                     ]
        train.py(4): loss        [                        ]             own: 26, of step: 13
        torch/functional.py        [                   ]                counts to loss
        aten::mm                       [          ]                     and so does this

    Device work counts to the stack of its launch, and time of a thread without frames (autograd)
    to the main thread's stack. Own time adds up to the window. Empty without Python stacks.
    """
    if not (dag.events.kind == EventKind.PYTHON).any():
        return FUNCTIONS.empty()
    return function_table(path_stacks(dag, path_segments(dag, [window])), window.dur_ns)


def function_table(stacks: Stacks, whole_ns: int) -> pd.DataFrame:
    """Functions of the stacks of a path, schema `FUNCTIONS`."""
    function, op, dur_ns = stacks.own_ns()
    code, at = np.unique(function, return_inverse=True)
    own_ns = np.zeros(len(code), dtype=np.int64)
    np.add.at(own_ns, at, dur_ns)
    if int(own_ns.sum()) != whole_ns:
        raise GraphError("the own time of functions does not add up to the window.")
    symbols = np.append(stacks.dag.events.symbols.array, "")
    most = np.lexsort((op, dur_ns, at))
    mostly = symbols[op[most[np.append(np.diff(at[most]) > 0, True)[: len(most)]]]]
    inclusive_ns = stacks.inclusive_ns()
    backward_ns = stacks.inclusive_ns(with_backward=True) - inclusive_ns
    # Around others, a function may have no own time.
    rest = np.setdiff1d(np.flatnonzero(inclusive_ns + backward_ns), code)
    code = np.concatenate([code, rest])
    own_ns = np.concatenate([own_ns, np.zeros(len(rest), dtype=np.int64)])
    mostly = np.concatenate([mostly, np.full(len(rest), "", dtype=object)])
    named = code >= 0
    frame = symbols[code]
    names = [function_and_place(text) if text else (NO_FUNCTION, "") for text in frame.tolist()]
    found = FUNCTIONS.frame(
        {
            "function": [name for name, _ in names],
            "place": [place for _, place in names],
            "own_ns": own_ns,
            "own_share": own_ns / max(whole_ns, 1),
            "inclusive_ns": np.where(named, inclusive_ns[code], own_ns),
            "backward_ns": np.where(named, backward_ns[code], 0),
            "mostly": mostly,
            "frame": frame,
        }
    )
    return found.sort_values(
        ["own_ns", "inclusive_ns", "frame"], ascending=[False, False, True], ignore_index=True
    )


def worth_removing(found: pd.DataFrame) -> list[str]:
    """Frames of the largest functions, and of the deepest one that has half of the path."""
    whole_ns = max(int(found["own_ns"].sum()), 1)
    named = found[(found["frame"] != "") & (found["inclusive_ns"] < EVERYWHERE * whole_ns)]
    large = named[named["own_ns"] >= _LEAST * whole_ns].head(_N_REMOVED)
    half = named[named["inclusive_ns"] >= _MOST * whole_ns].nsmallest(1, "inclusive_ns")
    return list(dict.fromkeys([*large["frame"], *half["frame"]]))
