"""Questions, declared once: a trace answers for its window, a job for every rank."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from inspect import signature
from numbers import Integral
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import pandas as pd

from htagraph.errors import QueryError, one_of
from htagraph.queries.synonyms import targets_of

Question = Callable[..., "pd.DataFrame"]
"""A function of a graph's data, a window and options."""

_FILES = {
    "steps": "temporal_breakdown step_times steady_state idle_time idle_intervals idle_categories",
    "utilization": "utilization device_activity utilization_losses",
    "communication": "class_overlap overlap exposed_communication collectives",
    "kernels": "kernel_breakdown kernel_durations graph_nodes kernel_patterns",
    "roofline": "roofline mfu speed_of_light",
    "counters": "launch_stats counters queue_blocked memory_timeline sampled_counters "
    "cupti_counters cupti_rates",
    "operators": "annotation_breakdown operator_breakdown operator_tree execution_nodes functions",
    "cost": "opportunities slack cost near_critical",
    "quality": "kinds quality damage inferences profiler_overhead",
}
QUESTIONS = {name: file for file, names in _FILES.items() for name in names.split()}
"""All questions, for scripts and the command line, and the file of `queries` that each is in. To
add one: a function in a file of ``queries/``, its schema in `htagraph.model.answers`, this table, a
method of `Questions`, the laws, a test of its own. test_questions says what is missing.
"""

_MAX_INT = 2**62
"""Largest integer option: sums of two still fit int64."""

ARGS_READERS = frozenset({"cupti_counters", "cupti_rates"})
"""Questions that also need the ``args`` of events, which are in the file only."""
STACK_READERS = frozenset({"functions"})
"""Questions that need Python stacks."""


def question_of(name: str) -> Question:
    """The function of a question; its module is loaded when it is first asked."""
    question: Question = getattr(import_module(f"htagraph.queries.{QUESTIONS[name]}"), name)
    return question


def unknown_question(asked: str, known: Iterable[str]) -> QueryError:
    """The error for something that is no question: the nearest by meaning, and all there are."""
    names = sorted(known)
    near = [target.name for target in targets_of(asked, names) if target.name in names]
    meant = f"{near[0]!r} is near. " if near else ""
    return QueryError(f"unknown question {asked!r}.", hint=f"{meant}One of {', '.join(names)}.")


def check_options(asked: type[Questions], question: str, options: Mapping[str, Any]) -> None:
    """Check options of a question against the signature of its method."""
    method = getattr(asked, question)
    parameters = signature(method, eval_str=True).parameters.values() if callable(method) else ()
    takes = {one.name: one.annotation for one in parameters if one.kind is one.KEYWORD_ONLY}
    for name, value in options.items():
        if name not in takes:
            raise QueryError(
                f"{question} has no option {name!r}.",
                hint=one_of(name, takes, "its options are") if takes else "it has none.",
            )
        labels = get_args(takes[name]) if get_origin(takes[name]) is Literal else ()
        if labels and value not in labels:
            raise QueryError(
                f"{question} has no {name} {value!r}.", hint=one_of(str(value), labels)
            )
        if takes[name] is int and not (isinstance(value, Integral) and 0 <= int(value) <= _MAX_INT):
            raise QueryError(f"{name} of {question} must be a whole number >= 0, not {value!r}.")
        is_name = takes[name] is not int and not labels
        if is_name and not isinstance(value, (str, re.Pattern, NoneType)):
            raise QueryError(f"{name} of {question} must be a name, not {value!r}.")


class Questions(ABC):
    """Questions that a graph or a job answers, each with a DataFrame of a declared schema.

    The schema of `idle_time` is `htagraph.model.answers.IDLE_TIME`.
    """

    @abstractmethod
    def _ask(self, question: str, **options: Any) -> pd.DataFrame:  # noqa: ANN401
        """Answer to a question."""

    def ask(self, question: str, **options: Any) -> pd.DataFrame:  # noqa: ANN401
        """Answer to a question by name: the result of the method of that name.

        Parameters
        ----------
        question : str
            A key of `QUESTIONS`.
        **options
            As for the method.

        Raises
        ------
        QueryError
            If the question, an option or its value is unknown; the hint lists the known ones.
        """
        if question not in QUESTIONS:
            raise unknown_question(question, QUESTIONS)
        check_options(type(self), question, options)
        answer: pd.DataFrame = getattr(self, question)(**options)
        return answer

    def temporal_breakdown(self) -> pd.DataFrame:
        """Time of each device by what it does: compute, exposed communication, copies, idle."""
        return self._ask("temporal_breakdown")

    def utilization(
        self, *, by: Literal["device", "step", "time"] = "device", bins: int = 100
    ) -> pd.DataFrame:
        """How full each device is: whether a kernel runs, on how many SMs, with how many warps.

        Estimates from launch geometry, with their coverage; over time, in ``bins`` parts.
        """
        return self._ask("utilization", by=by, bins=bins)

    def device_activity(self) -> pd.DataFrame:
        """How busy each device is, from coarse to fine: estimated, and measured by other tools."""
        return self._ask("device_activity")

    def utilization_losses(self) -> pd.DataFrame:
        """Warp slots of each device: used, or why empty, and by which kernel; adds up to 1."""
        return self._ask("utilization_losses")

    def class_overlap(self) -> pd.DataFrame:
        """Time of each device by the classes of work that run at once; it adds up to the window."""
        return self._ask("class_overlap")

    def idle_time(self, *, per: Literal["device", "stream"] = "device") -> pd.DataFrame:
        """Idle time of each device, or stream, by cause; the causes add up to the idle time."""
        return self._ask("idle_time", per=per)

    def idle_intervals(self, *, per: Literal["device", "stream"] = "device") -> pd.DataFrame:
        """Every idle interval of each device, or stream, tiled by its causes."""
        return self._ask("idle_intervals", per=per)

    def idle_categories(self, *, kernel_wait_ns: int = 30_000) -> pd.DataFrame:
        """Idle time per stream as ``host_wait``, ``kernel_wait`` and other, by HTA's definition."""
        return self._ask("idle_categories", kernel_wait_ns=kernel_wait_ns)

    def kernel_breakdown(
        self,
        *,
        by: Literal[
            "class",
            "name",
            "op",
            "stream",
            "rule",
            "shape",
            "module",
            "annotation",
            "step",
            "phase",
        ] = "class",
    ) -> pd.DataFrame:
        """Number and time of kernels by what they do, or by what launched them."""
        return self._ask("kernel_breakdown", by=by)

    def kernel_durations(self, *, name: str | re.Pattern[str] = "*") -> pd.DataFrame:
        """Kernels, copies and fills one by one, with the operator, annotation and module."""
        return self._ask("kernel_durations", name=name)

    def roofline(
        self,
        *,
        by: Literal[
            "op", "shape", "kernel", "module", "annotation", "step", "phase", "family"
        ] = "op",
    ) -> pd.DataFrame:
        """FLOP/s and bytes/s of operators, and the time that they need at their roof."""
        return self._ask("roofline", by=by)

    def mfu(self) -> pd.DataFrame:
        """Model FLOPs utilization of the window and its steps: time at peak over time."""
        return self._ask("mfu")

    def speed_of_light(self) -> pd.DataFrame:
        """How much shorter the window would be with each operator, and with all, at the roof."""
        return self._ask("speed_of_light")

    def overlap(self) -> pd.DataFrame:
        """Communication that overlapped with computation, and communication that was exposed."""
        return self._ask("overlap")

    def exposed_communication(self) -> pd.DataFrame:
        """Exposed time of each communication kernel, and why it could not overlap."""
        return self._ask("exposed_communication")

    def launch_stats(
        self, *, launch_cutoff_ns: int = 50_000, delay_cutoff_ns: int = 100_000
    ) -> pd.DataFrame:
        """Launches one by one: the call, its work, its delay, and whether these are outliers."""
        return self._ask(
            "launch_stats", launch_cutoff_ns=launch_cutoff_ns, delay_cutoff_ns=delay_cutoff_ns
        )

    def graph_nodes(self) -> pd.DataFrame:
        """Nodes of CUDA and HIP graphs: duration and start of each, over all replays."""
        return self._ask("graph_nodes")

    def counters(
        self,
        *,
        name: Literal["queue_length", "memory_bandwidth"] = "queue_length",
        by: Literal["change", "track"] = "change",
    ) -> pd.DataFrame:
        """Values of a counter over time, or what each is: launches outstanding, or bandwidth."""
        return self._ask("counters", name=name, by=by)

    def queue_blocked(self, *, max_queue_length: int = 1_024) -> pd.DataFrame:
        """Time in which each stream's launch queue was full and blocked launch calls."""
        return self._ask("queue_blocked", max_queue_length=max_queue_length)

    def kernel_patterns(
        self,
        *,
        under: str | re.Pattern[str] | None = None,
        min_length: int = 2,
        max_length: int = 16,
        rank_by: Literal["device_ns", "n_occurrences", "gap_ns"] = "device_ns",
        top: int = 100,
        by: Literal["pattern", "occurrence"] = "pattern",
    ) -> pd.DataFrame:
        """Repeated sequences of kernels, and the gaps that fusing them would save."""
        return self._ask(
            "kernel_patterns",
            under=under,
            min_length=min_length,
            max_length=max_length,
            rank_by=rank_by,
            top=top,
            by=by,
        )

    def annotation_breakdown(
        self, *, name: str | re.Pattern[str] = "*", on: Literal["host", "device"] = "host"
    ) -> pd.DataFrame:
        """Host and device time under annotations, or under their projections onto the device."""
        return self._ask("annotation_breakdown", name=name, on=on)

    def operator_breakdown(
        self,
        *,
        by: Literal["name", "shape", "module", "annotation", "step", "phase"] = "name",
    ) -> pd.DataFrame:
        """Inclusive and exclusive host time, and device time, by operator."""
        return self._ask("operator_breakdown", by=by)

    def operator_tree(self, *, max_depth: int = 100) -> pd.DataFrame:
        """Call tree of operators with inclusive and exclusive time."""
        return self._ask("operator_tree", max_depth=max_depth)

    def opportunities(self) -> pd.DataFrame:
        """Changes that would make the window shorter, each with its predicted saving.

        The graph is replayed with each change; `what_if` replays others.
        """
        return self._ask("opportunities")

    def memory_timeline(self) -> pd.DataFrame:
        """Allocations and releases over time, if recorded."""
        return self._ask("memory_timeline")

    def execution_nodes(self) -> pd.DataFrame:
        """Operators with their nodes of an execution trace, if one was added."""
        return self._ask("execution_nodes")

    def step_times(self) -> pd.DataFrame:
        """Length and device use of each step."""
        return self._ask("step_times")

    def steady_state(self) -> pd.DataFrame:
        """Typical steps, the one that represents them, and how the others differ."""
        return self._ask("steady_state")

    def collectives(self) -> pd.DataFrame:
        """Collectives of the rank in the order of their launches."""
        return self._ask("collectives")

    def slack(self) -> pd.DataFrame:
        """Events with total and free float: how much later each may end without delaying others."""
        return self._ask("slack")

    def cost(
        self, *, by: Literal["name", "op", "module", "stream", "bound", "rule"] = "name"
    ) -> pd.DataFrame:
        """Cost of each group: how much shorter the window would be if the group took no time.

        Raises
        ------
        MissingEventsError
            If modules are asked for, and no Python stack was recorded.
        """
        return self._ask("cost", by=by)

    def functions(self) -> pd.DataFrame:
        """Functions of user code by their time on the critical path, with all that they call.

        Needs Python stacks.
        """
        return self._ask("functions")

    def near_critical(self, *, within_ns: int = 0, top: int = 20) -> pd.DataFrame:
        """Chains of events that are almost critical.

        ``within_ns`` is their largest distance from the path, by default 5% of the window.
        """
        return self._ask("near_critical", within_ns=within_ns, top=top)

    def kinds(self, *, of: Literal["edges", "events"] = "edges") -> pd.DataFrame:
        """Kinds of edges with their rules, or of events: how many, and their share of the path."""
        return self._ask("kinds", of=of)

    def quality(self) -> pd.DataFrame:
        """Checks of what is linked, classified and recorded, and which answers suffer."""
        return self._ask("quality")

    def damage(self) -> pd.DataFrame:
        """What the recording lacks or has wrong, and what that does to the answers."""
        return self._ask("damage")

    def inferences(self, *, by: Literal["rule", "pair"] = "rule") -> pd.DataFrame:
        """Inferred edges by rule, with their time on the critical path, or each pair with evidence.

        Waits that are not recorded are inferred from the order and times of events;
        ``compile(infer=False)`` turns that off.
        """
        return self._ask("inferences", by=by)

    def profiler_overhead(self) -> pd.DataFrame:
        """Recorded work of the profiler and the driver, and its share of the path.

        The cost of recording each event is not in the trace: this is a lower bound.
        """
        return self._ask("profiler_overhead")

    def cupti_counters(self) -> pd.DataFrame:
        """Hardware counters per kernel, of CUPTI or Nsight Compute, with the operators above.

        Raises
        ------
        MissingEventsError
            If there are ranges, but not the file that has their counters.
        """
        return self._ask("cupti_counters")

    def cupti_rates(self, *, by: Literal["name", "op", "top_op"] = "name") -> pd.DataFrame:
        """Achieved operations and bytes per second by kernel or operator, from hardware counters.

        Raises
        ------
        MissingEventsError
            If there are ranges, but not the file that has their counters.
        """
        return self._ask("cupti_rates", by=by)

    def sampled_counters(self, *, by: Literal["window", "step", "time"] = "window") -> pd.DataFrame:
        """Mean and extremes of each metric that another tool sampled in the window."""
        return self._ask("sampled_counters", by=by)
