"""Topics of host ranges and Python frames, by name: compilation, autotuning, checkpointing ...

Recompilation is a separate topic. Dynamo numbers compilations: ``compile_id=3/1`` means that frame
3 was compiled once before. Without a number, a compilation after the first step, or in several
steps, counts as a recompilation.
"""

from __future__ import annotations

import re

import numpy as np

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import gather
from htagraph.lookup.attribution import around, host_of
from htagraph.lookup.python_code import FIRST_WAIT
from htagraph.lookup.selecting import under_mask
from htagraph.lookup.steps import find_steps, step_at
from htagraph.lookup.work_groups import EVALUATES, recomputed
from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.arrays import I8, I64, Bools, Rows
from htagraph.model.dag import Dag
from htagraph.model.kinds import Cause, EventKind

_TUNES = (
    r"\bbenchmark_(all_configs|gpu|fused_nodes|codegened_module)\b|\bcoordinate_descent_tuning\b"
    r"|[/\\](triton[/\\]testing\.py\(\d+\): do_bench"
    r"|runtime[/\\](autotuner\.py\(\d+\): (_bench|benchmark)$"
    r"|benchmarking\.py\(\d+\): benchmark"
    r"|triton_heuristics\.py\(\d+\): (autotune_to_one_config|bench)$)"
    r"|_inductor[/\\](autotune_process\.py\("
    r"|select_algorithm\.py\(\d+\): (benchmark|autotune|do_autotuning)))"
)
_COMPILES = (
    r"\(dynamo_timed\)$|^(dynamo$|(entire_frame|entire_backward|backend|inductor)_compile$"
    r"|create_aot_dispatcher_function$|fx_codegen_and_compile$|fx_graph_cache_(lookup|get)"
    r"|_compile\.(<locals>\.)?compile_inner\b|compile_fx\b|(compile_attempt|bytecode_tracing)\b"
    r"|cudagraphify|(cuda|hip)(Graph(Instantiate|EndCapture)|Stream(Begin|End)Capture))"
    r"|[/\\](_dynamo[/\\]convert_frame\.py\("
    r"|_inductor[/\\](compile_fx\.py\(\d+\): (compile_fx|fw_compiler|bw_compiler)"
    r"|cudagraph_trees\.py\(\d+\): (record_function|_?record|add_function|cudagraphify)$)"
    r"|compiler[/\\]compiler\.py\(\d+\): compile$|runtime[/\\]jit\.py\(\d+\): _do_compile$)"
)
NAMES = {
    Cause.GARBAGE_COLLECTION: re.compile(
        r"(?i)^<built-in function collect>$|^python gc\b|garbage[ _-]?collect|\bgc\.collect"
    ),
    Cause.CHECKPOINTING: re.compile(
        r"(^|[/\\])torch[/\\]"
        r"(serialization\.py\(\d+\): (save|load)$|distributed[/\\]checkpoint[/\\])"
        r"|(?i:\btorch\.(save|load)\b|\b(sav|load|writ)(e|es|ing)?[ _-]((the|model|full)[ _-])?"
        r"(checkpoint|ckpt|state_?dict)|\b(checkpoint|ckpt)[ _-](sav|load|writ)(e|ing)\b)"
    ),
    Cause.AUTOTUNING: re.compile(_TUNES),
    Cause.COMPILATION: re.compile(_COMPILES),
}
"""Name patterns of host ranges and Python frames, by topic; the first match wins."""

TOPICS = (
    *NAMES,
    Cause.RECOMPILATION,
    Cause.RECOMPUTATION,
    Cause.ANOMALY_DETECTION,
    Cause.PYTHON_WAITS,
)
"""All topics; a topic's number is its position."""

_NUMBER = {topic: number for number, topic in enumerate(TOPICS)}
_COMPILE_ID = re.compile(r"\bcompile_id=(?:!\d+/)?\d+/(\d+)")
"""Captures how often the frame was compiled before."""
_CHECKS = re.compile(r"^aten::(isnan|_is_any_true|any|item|is_nonzero)$")
_CHECKED = 0.25
"""Least share of functions of the backward pass whose gradients are searched for NaN. Measured: 51%
where detection is on, 0 in 65 other files. Pinned by tests/explain/test_topics.py."""
_CONVOLVES = re.compile(r"^aten::(cudnn|miopen|_)?_?convolution(_backward|_transpose|_add_relu)?$")


def find_topics(dag: Dag, event: Rows, start_ns: I64, of_frame: I8) -> I8:
    """Number of the topic of each piece of time, -1 for none.

    `event`: what runs. `of_frame`: number of the topic of the Python frames in which it runs, or
    from `FIRST_WAIT` on what they wait for.
    """
    found = np.where(of_frame < FIRST_WAIT, of_frame, _NUMBER[Cause.PYTHON_WAITS])
    of_frame = np.where(of_frame < FIRST_WAIT, of_frame, -1)
    host = host_of(dag, event)
    for topic, (calls, until_ns) in (
        (Cause.RECOMPUTATION, recomputed(dag)),
        (Cause.ANOMALY_DETECTION, _anomaly_detection(dag)),
    ):
        inside = nearest(dag.parent, host, calls) >= 0
        inside |= start_ns < gather(until_ns, event, 0)
        found[inside & (of_frame < 0)] = _NUMBER[topic]
    for topic in reversed(NAMES):
        named = _named(dag, topic)
        if topic is Cause.AUTOTUNING:
            named |= _times_itself(dag)
        found[nearest(dag.parent, host, named) >= 0] = _NUMBER[topic]
        found[of_frame == _NUMBER[topic]] = _NUMBER[topic]
    compiled = np.flatnonzero(found == _NUMBER[Cause.COMPILATION])
    if len(compiled):
        again = compiled[_is_again(dag, host[compiled], start_ns[compiled])]
        found[again] = _NUMBER[Cause.RECOMPILATION]
    return found


def _anomaly_detection(dag: Dag) -> tuple[Bools, I64]:
    """What anomaly detection calls, and until when an operator records its traceback.

    The engine searches each gradient for NaN, after the function that computes it. In the forward
    pass, each operator that records gradients first formats the stack.
    """
    events = dag.events
    calls, until_ns = np.zeros(len(events), dtype=bool), np.zeros(len(events), dtype=np.int64)
    evaluated = events.searched(EVALUATES) & events.is_host
    checked = gather(evaluated, dag.parent, default=False)
    parent = dag.parent[np.flatnonzero(checked & events.searched(r"^aten::isnan$"))]
    if not len(parent) or len(np.unique(parent)) < _CHECKED * evaluated.sum():
        return calls, until_ns
    calls = checked & events.searched(_CHECKS)
    records = (events.column("sequence") >= 0) & (events.column("fwd_thread", 0) <= 0) & ~evaluated
    called = np.flatnonzero(gather(records, dag.parent, default=False))
    until_ns[dag.parent[called]] = np.iinfo(np.int64).max
    np.minimum.at(until_ns, dag.parent[called], events.ts_ns[called])
    return calls, until_ns


def about(dag: Dag, topic: Cause) -> Bools:
    """Whether each event is a host range or Python frame of a topic that names tell."""
    events = dag.events
    says = Cause.COMPILATION if topic is Cause.RECOMPILATION else topic
    named: Bools = events.searched(NAMES[says])
    named &= events.is_host | (events.kind == EventKind.PYTHON)
    if topic is Cause.AUTOTUNING:
        return named | _times_itself(dag)
    if says is Cause.COMPILATION:
        rows = np.flatnonzero(named)
        host = np.where(events.is_host[rows], rows, -1)
        again = _is_again(dag, host, events.ts_ns[rows])
        named[rows] = again == (topic is Cause.RECOMPILATION)
    return named


def _named(dag: Dag, topic: Cause) -> Bools:
    """Whether each event is a host range of the topic."""
    named: Bools = dag.events.searched(NAMES[topic])
    return named & dag.events.is_host


def _times_itself(dag: Dag) -> Bools:
    """Whether each event is a convolution that times kernels (``cudnn.benchmark``)."""
    measures = np.flatnonzero(call_meanings(dag.events) == CallMeaning.ELAPSED_TIME)
    convolves: Bools = dag.events.searched(_CONVOLVES)
    return convolves & around(dag, measures)


def _is_again(dag: Dag, host: Rows, start_ns: I64) -> Bools:
    """Whether each compilation, in a host event or in a frame at a time, is a recompilation."""
    events = dag.events
    named = _named(dag, Cause.COMPILATION)
    tops = named & ~under_mask(dag, named)
    before = np.full(len(events), -1, dtype=np.int64)
    says = events.symbols.searched(_COMPILE_ID)
    numbered = np.flatnonzero(events.named(says) & events.is_host)
    number = np.full(len(says), -1, dtype=np.int64)
    for code in np.flatnonzero(says).tolist():
        parts = _COMPILE_ID.search(events.symbols.texts[code])
        number[code] = int(parts[1]) if parts else -1
    inside = nearest(dag.parent, numbered, tops)
    known = inside >= 0
    np.maximum.at(before, inside[known], number[events.name[numbered[known]]])
    top = nearest(dag.parent, host, tops)
    n_before = gather(before, top, -1)
    return np.where(
        n_before >= 0, n_before > 0, _is_late(dag, tops, gather(events.ts_ns, top, -1), start_ns)
    )


def _is_late(dag: Dag, tops: Bools, began_ns: I64, start_ns: I64) -> Bools:
    """Whether a compilation is after the first step, or in one of several steps that compile."""
    events = dag.events
    steps = find_steps(events)
    frames = events.searched(NAMES[Cause.COMPILATION])
    frames &= events.kind == EventKind.PYTHON
    compiling = step_at(steps, events.ts_ns[np.flatnonzero(tops | frames)])
    several = len(np.unique(compiling[compiling >= 0])) > 1
    step = step_at(steps, np.where(began_ns >= 0, began_ns, start_ns))
    late: Bools = (step > 0) | ((step == 0) & several)
    return late
