"""Device work from before the profile: the device works it off while it begins."""

from __future__ import annotations

import numpy as np

from htagraph.model.arrays import Bools
from htagraph.model.dag import Dag


def carried_over(dag: Dag) -> Bools:
    """Whether each event is device work from before the profile.

    It has no recorded launch, and starts before the first work of its device that has one.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.Trace.from_events(hg.synth.timeline('''
    ...     cpu 1    |[launch >a]
    ...     stream 7 | [old ]    [k <a    ][odd ]
    ... ''')).compile()
    >>> graph.dag.events.names(np.flatnonzero(carried_over(graph.dag))).tolist()
    ['old']
    """
    events = dag.events
    found = np.zeros(len(events), dtype=bool)
    linked = np.flatnonzero(events.is_device & (dag.launch >= 0))
    for device in np.unique(events.device[linked]).tolist():
        first_ns = events.ts_ns[linked[events.device[linked] == device]].min()
        found |= (events.device == device) & (events.ts_ns < first_ns)
    found &= events.is_device & (dag.launch < 0)
    return found
