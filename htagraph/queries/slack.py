"""Slack: how much later each event could end without delaying the window."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.lookup.attribution import track_labels
from htagraph.lookup.naming import op_names, spelling
from htagraph.model.answers import SLACK
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.schema import categorical
from htagraph.model.window import Window
from htagraph.replay.rehearsal import Rehearsal


def slack(dag: Dag, window: Window) -> pd.DataFrame:
    """Events with their total float and free float: how much later each may end.

    ::

        cpu 1    |[launch >a][launch >b]        [sync @*]    the window ends 4 us after a
        stream 7 |      [a <a                       ]
        stream 9 |                 [b <b   ]                 b may end 13 us later

    Parameters
    ----------
    window : Window
        It ends when all work is done that was done by its end. Events that still run then have no
        row. Events that the end does not depend on may end as late as the window.

    Returns
    -------
    DataFrame, schema `answers.SLACK`
        Host events and device work that end in the window; least float first, then the longest.

    Notes
    -----
    Total and free float of the critical path method (Kelley and Walker, 1959), in the replay that
    gives expected savings (`Rehearsal.expected`). An event that ends later by ``d`` lengthens the
    window by exactly ``max(d - total_float_ns, 0)``.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |[launch >a][launch >b]        [sync @*]
    ...     stream 7 |      [a <a                       ]
    ...     stream 9 |                 [b <b   ]
    ... '''))
    >>> slack(dag, dag.span)[["name", "dur_ns", "total_float_ns", "free_float_ns"]]
                        name  dur_ns  total_float_ns  free_float_ns
    0                      a   29000               0              0
    1  cudaDeviceSynchronize    9000               0              0
    2       cudaLaunchKernel   11000            9000              0
    3       cudaLaunchKernel   11000            9000              0
    4                      b    9000           13000          13000
    """
    events, replay = dag.events, Rehearsal(dag, window).expected.replay
    rows = np.flatnonzero(
        (events.is_host | events.is_device)
        & (events.end_ns > window.start_ns)
        & (events.end_ns <= window.end_ns)
    )
    ends = replay.places[2 * rows + 1]
    until_end_ns = window.end_ns - events.end_ns[rows]
    total = np.minimum(replay.float_ns(window)[ends], until_end_ns)
    free = np.minimum(replay.free_float_ns()[ends], total)
    order = np.lexsort(
        (
            events.stream[rows],
            events.device[rows],
            spelling(dag)[events.name[rows]],
            events.ts_ns[rows],
            -events.dur_ns[rows],
            total,
        )
    )
    rows, total, free = rows[order], total[order], free[order]
    return SLACK.frame(
        {
            "event": rows,
            "name": events.names(rows),
            "op": op_names(dag, rows),
            "kind": categorical(events.kind[rows], EventKind.labels()),
            "track": track_labels(dag, rows),
            "ts_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
            "total_float_ns": total,
            "free_float_ns": free,
            "is_critical": total == 0,
        }
    )
