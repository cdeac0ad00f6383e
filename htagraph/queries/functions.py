"""What each function of the program costs the critical path, with all that it calls."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import gather
from htagraph.errors import GraphError
from htagraph.explain.stacks import Stacks, window_stacks
from htagraph.model.answers import FUNCTIONS
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.names import function_and_place
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
    return functions_in(window_stacks(dag, window), window)


def functions_in(stacks: Stacks, window: Window) -> pd.DataFrame:
    """The same of stacks of the path of a window."""
    events, none = stacks.dag.events, len(stacks.dag.events.symbols)
    owner = gather(stacks.function, stacks.leaf)
    op = nearest(stacks.parent, stacks.leaf, events.kind[stacks.event] == EventKind.OP)
    is_inside = (op >= 0) & (gather(stacks.function, op) == owner)  # the function calls it
    op = np.where(is_inside, gather(events.name[stacks.event], op), none)
    parts = pd.DataFrame({"owner": owner % (none + 1), "op": op, "dur_ns": stacks.dur_ns})
    parts = parts.groupby(["owner", "op"], as_index=False).sum()
    most = parts.sort_values("dur_ns", kind="stable").drop_duplicates("owner", keep="last")
    mostly, own_ns = np.full(none + 1, none), np.zeros(none + 1, dtype=np.int64)
    mostly[most["owner"]] = most["op"]
    np.add.at(own_ns, parts["owner"], parts["dur_ns"])
    if int(own_ns.sum()) != window.dur_ns:
        raise GraphError("the own time of functions does not add up to the window.")
    inclusive_ns, with_backward_ns = (
        np.append(stacks.inclusive_ns(with_backward=more), own_ns[none]) for more in (False, True)
    )
    code, symbols = np.flatnonzero(with_backward_ns), np.append(events.symbols.array, "")
    frames = symbols[code].tolist()
    names = [function_and_place(frame) if frame else (NO_FUNCTION, "") for frame in frames]
    found = FUNCTIONS.frame(
        {
            "function": [name for name, _ in names],
            "place": [place for _, place in names],
            "own_ns": own_ns[code],
            "own_share": own_ns[code] / max(window.dur_ns, 1),
            "inclusive_ns": inclusive_ns[code],
            "backward_ns": (with_backward_ns - inclusive_ns)[code],
            "mostly": symbols[mostly[code]],
            "frame": frames,
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
