"""Steady state: typical steps, the one that represents them, and how others differ."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.explain.odd_steps import odd_step_reasons
from htagraph.lookup.steady_steps import steady_steps
from htagraph.model.answers import STEADY_STATE
from htagraph.model.dag import Dag
from htagraph.model.window import Window


def steady_state(dag: Dag, window: Window) -> pd.DataFrame:
    """Steps that overlap the window: which are steady, which represents them, how others differ.

    Steps are steady if at least three do the same work and take about as long
    (`htagraph.lookup.steady_steps` has the limits); the one of median length represents them. All
    steps of the trace are compared.

    Returns
    -------
    DataFrame, schema `answers.STEADY_STATE`
        By time. With fewer than three typical steps, none is steady.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     us    |0         10        20        30        40        50        60
    ...     cpu 1 |{ProfilerStep#0  }{ProfilerStep#1}{ProfilerStep#2 [save    ]}{ProfilerStep#3 }
    ... '''))
    >>> found = steady_state(dag, dag.span)
    >>> found[["period_ns", "is_steady", "is_representative"]]
       period_ns  is_steady  is_representative
    0      18000       True              False
    1      16000       True              False
    2      27000      False              False
    3      17000       True               True
    >>> found["reason"][2]
    '1 event more than usual (+1 save); 50% longer (+10.0 us save)'
    """
    steady = steady_steps(dag)
    parts, n = steady.parts, len(steady.parts.step)
    step, is_device = parts.part >> 1, dag.events.is_device[parts.event]
    period = parts.next_ns - parts.start_ns
    shown = np.flatnonzero(
        (parts.start_ns < window.end_ns) & (dag.events.end_ns[parts.step] > window.start_ns)
    )
    columns = {
        "step": np.arange(n),
        "name": dag.events.names(parts.step),
        "start_ns": parts.start_ns,
        "dur_ns": dag.events.dur_ns[parts.step],
        "period_ns": period,
        "delta_ns": steady.compared_ns - steady.compared_ns[steady.usual : steady.usual + 1],
        "n_events": np.bincount(step, minlength=n),
        "n_different": steady.n_different,
        "device_ns": sum_by_code(step[is_device], dag.events.dur_ns[parts.event[is_device]], n),
        "is_steady": steady.is_steady,
        "is_representative": steady.is_representative,
        "reason": np.array(odd_step_reasons(dag, steady), dtype=object),
    }
    return STEADY_STATE.frame({name: values[shown] for name, values in columns.items()})
