"""The catalogue of questions, and why an answer is empty: what was not recorded, and how to."""

from __future__ import annotations

import inspect

import pandas as pd

from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.model.frames import CATALOGUE
from htagraph.queries.questions import QUESTIONS, Questions

_DEVICE = (
    "No device work here. To record it, profile with ProfilerActivity.CUDA (or XPU, MTIA) "
    "on a machine that has the device."
)
_ROOF = (
    "No device work of operators whose work is known here. To record it, profile with "
    "ProfilerActivity.CUDA and record_shapes=True."
)
_COUNTERS = (
    "No hardware counters were recorded. CUPTI records them with experimental_config="
    "_ExperimentalConfig(profiler_metrics=[…]); a table of Nsight Compute is added with --beside."
)
_STEPS = (
    "No steps were recorded. Call profiler.step() after each iteration; a window can also be given "
    "as times."
)
_COLLECTIVES = (
    "No collectives here. To record them, initialise torch.distributed before the "
    "profiler, and profile with ProfilerActivity.CPU and CUDA."
)
_PIPELINE = (
    "No pipeline was found: stages that send activations to each other and receive gradients. The "
    "traces of all stages are needed, with ProfilerActivity.CPU."
)
_UNNAMED = {
    "module": "No modules were recorded. torch.profiler.profile(with_stack=True, with_modules=True)"
    " records them; if the file has stacks, --stacks reads them.",
    "shape": "No shapes were recorded. torch.profiler.profile(record_shapes=True) records them.",
    "annotation": "No annotations here. Name parts of the program with "
    "torch.profiler.record_function.",
    "step": _STEPS,
}
"""Of an answer whose groups have no names: by what they were asked for."""

EMPTY_ANSWERS = {
    **dict.fromkeys(
        (
            *("temporal_breakdown", "utilization", "device_activity", "utilization_losses"),
            *("class_overlap", "idle_time", "idle_intervals", "idle_categories", "counters"),
            *("kernel_breakdown", "kernel_durations", "launch_stats", "queue_blocked", "overlap"),
        ),
        _DEVICE,
    ),
    **dict.fromkeys(("roofline", "mfu", "speed_of_light"), _ROOF),
    **dict.fromkeys(("cupti_counters", "cupti_rates"), _COUNTERS),
    **dict.fromkeys(("step_times", "steady_state"), _STEPS),
    **dict.fromkeys(("collectives", "bandwidths", "process_groups", "layout"), _COLLECTIVES),
    **dict.fromkeys(
        (
            *("pipeline", "pipeline_bubbles", "pipeline_savings", "pipeline_schedule"),
            "pipeline_what_if",
        ),
        _PIPELINE,
    ),
    "exposed_communication": "No communication here, or all of it is hidden.",
    "graph_nodes": "No CUDA or HIP graph was launched here.",
    "kernel_patterns": "No sequence of kernels repeats here.",
    "annotation_breakdown": _UNNAMED["annotation"],
    "operator_breakdown": "No operators here. ProfilerActivity.CPU records them.",
    "operator_tree": "No operators here. ProfilerActivity.CPU records them.",
    "opportunities": "No change that can be replayed would save time.",
    "memory_timeline": "Memory was not recorded. torch.profiler.profile(profile_memory=True) "
    "records it.",
    "execution_nodes": "No execution trace is next to this trace. Record one with "
    "torch.profiler.ExecutionTraceObserver, and add it with --beside.",
    "sampled_counters": "No log of another tool was added. Record one with nvidia-smi or dcgmi "
    "during the run, and add it with --beside.",
    "slack": "No events here.",
    "cost": "No such group here.",
    "near_critical": "No other chain comes that close to the path; a larger within_ns finds more.",
    "functions": "No Python stacks here. htagraph.profile and htagraph.handler sample them, "
    "torch.profiler.profile(with_stack=True) records them; if the file has stacks, --stacks reads "
    "them.",
    "kinds": "No events here.",
    "quality": "Nothing to check.",
    "damage": "Nothing is known to be missing or wrong in the recording.",
    "inferences": "Nothing was inferred: all dependencies in use were recorded.",
    "profiler_overhead": "The profiler recorded no work of its own.",
    "clocks": "No ranks.",
    "stragglers": "No ranks that meet others in collectives.",
    "delay_costs": "No rank waited for another one.",
    "experts": "No tokens were exchanged between experts, or their numbers were not recorded: "
    "record_shapes=True records them.",
}
"""By question: what an answer without rows means. ``test_page_parts.py`` names what is missing."""


def not_recorded(question: str, answer: pd.DataFrame, by: object = "") -> str:
    """What an answer means that has no rows, or no names of the groups; empty for any other."""
    if answer.empty:
        return EMPTY_ANSWERS[question]
    column = "group" if "group" in answer else "name"
    if by not in _UNNAMED or column not in answer:
        return ""
    names = answer[column].astype(str)
    is_named = names.str.contains("[", regex=False) if by == "shape" else names != ""
    return "" if is_named.any() else _UNNAMED[str(by)]


def all_questions() -> pd.DataFrame:
    """Names of the questions, their options with defaults, and their meanings."""
    rows = [_described(name, getattr(Questions, name)) for name in QUESTIONS]
    rows += [_described(name, getattr(Job, name), "Of a job: ") for name in JOB_QUESTIONS]
    columns = zip(*sorted(rows), strict=True)
    return CATALOGUE.frame(dict(zip(CATALOGUE.columns, columns, strict=True)))


def _described(name: str, asked: object, prefix: str = "") -> tuple[str, str, str]:
    """Name of a question, its options with their defaults, and the first lines of its docstring."""
    parameters = inspect.signature(asked).parameters.values() if callable(asked) else ()
    options = [f"{p.name}={p.default}" for p in parameters if p.kind is p.KEYWORD_ONLY]
    meaning = (inspect.getdoc(asked) or "").split("\n\n")[0].replace("\n", " ")
    return name, ", ".join(options), prefix + meaning
