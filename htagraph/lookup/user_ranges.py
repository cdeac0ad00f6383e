"""User ranges: annotations that the program made itself (``record_function``, NVTX).

Steps, and the ranges of PyTorch and its libraries, are annotations too: they are left out by name.
"""

from __future__ import annotations

import re

import numpy as np

from htagraph.algorithms.ancestors import nearest
from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import host_of
from htagraph.lookup.steps import step_events
from htagraph.model.arrays import I32, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.step_markers import STEP_MARKERS

WITHIN = " > "
"""Joins the names of nested ranges, the outermost first."""

_NOT_USERS = re.compile(
    "|".join(marker.pattern for marker in STEP_MARKERS.values())
    + r"|::|^(Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)|DistributedDataParallel\b"
    r"|FullyShardedDataParallel\b|(nccl|gloo|mpi|ucc|xccl|c10d|PP):|(Forward|Backward) \d+$"
    r"|record_param_comms"
    r"|PyTorch Profiler|Torch-Compiled Region|(## Call )?Compiled(Fx|Function|Autograd)"
    r"|Pregraph bytecode|TorchDynamo )|\bcompile_id=|\(dynamo_timed\)$"
)
"""Names of steps, and of ranges that PyTorch and its libraries make.

Found in 150 traces of public repositories.
"""


def user_ranges(dag: Dag, event: Rows) -> tuple[I32, Texts]:
    """Nested user ranges around each event, itself included: a code, and the text of each code.

    The text is ``train > validation``, empty outside. Device events belong to where they were
    launched.
    """
    events, symbols = dag.events, dag.events.symbols
    is_users = (events.kind == EventKind.ANNOTATION) & ~events.named(symbols.searched(_NOT_USERS))
    is_users[step_events(events)[0]] = False
    rows = np.flatnonzero(is_users)
    texts, code = [""], np.zeros(len(events), dtype=np.int32)
    if not len(rows):
        return np.zeros(len(event), dtype=np.int32), np.array(texts, dtype=object)
    above = nearest(dag.parent, dag.parent[rows].astype(np.int64), is_users)
    level = np.flatnonzero(above < 0)
    while len(level):
        around = gather(code, above[level], 0).astype(np.int64)
        key = around * len(symbols) + events.name[rows[level]]
        unique, which = np.unique(key, return_inverse=True)
        code[rows[level]] = len(texts) + which
        texts += [
            WITHIN.join(filter(None, (texts[outer], symbols.texts[name])))
            for outer, name in np.stack(np.divmod(unique, len(symbols))).T.tolist()
        ]
        done = np.zeros(len(events) + 1, dtype=bool)
        done[rows[level]] = True
        level = np.flatnonzero(done[above])
    innermost = nearest(dag.parent, host_of(dag, event), is_users)
    return gather(code, innermost, 0), np.array(texts, dtype=object)
