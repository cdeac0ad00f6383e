"""Windows of a job: the step of every rank that a name or a word stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from htagraph.errors import QueryError, WindowNotFoundError
from htagraph.job.ranks import RankStep, RankSummary, WindowName
from htagraph.lookup.find_window import (
    FIRST,
    LAST,
    MEDIAN,
    WHOLE,
    is_step_word,
    numbered_steps,
    times_in,
    warn_of_others,
)
from htagraph.model.symbols import compile_pattern


def job_window(summaries: Mapping[int, RankSummary], window: str | tuple[int, int]) -> WindowName:
    """Window of every rank that a name, a word or a pair of times stands for.

    A word stands for one step, the same on all ranks that recorded steps, unless an annotation has
    this name.
    """
    if window == WHOLE or not isinstance(window, str):
        return window
    steps = {rank: summary.steps for rank, summary in summaries.items() if summary.steps}
    if any(window in summary.called_like_words for summary in summaries.values()):
        return window
    if times_in(window) is not None:
        raise QueryError(
            "every rank has its own clock, so one pair of times does not fit all.",
            hint="name a step, or report on one rank.",
        )
    if is_step_word(window):
        return _step(summaries, steps, window)
    _warn_of_others(steps, window)
    return window


def _step(
    summaries: Mapping[int, RankSummary], steps: Mapping[int, tuple[str, ...]], word: str
) -> RankStep:
    """The step that a word stands for, on every rank."""
    if not steps:
        raise WindowNotFoundError(word, (), where="this job")
    if word == MEDIAN:
        return RankStep(_median(summaries), 0)
    place = -1 if word == LAST else 0
    named = {
        rank: names[place] if word in (FIRST, LAST) else _numbered(names, word)
        for rank, names in steps.items()
    }
    found = sorted(set(named.values()), key=list(named.values()).index)
    if len(found) == 1 and found[0]:
        return RankStep(found[0], place)
    if not any(found):
        raise WindowNotFoundError(word, next(iter(steps.values())), where="this job")
    said = "; ".join(
        f"{name or 'no such step'} on rank {listed([r for r in named if named[r] == name])}"
        for name in found
    )
    raise QueryError(
        f"ranks differ in what the {word} step is: {said}.",
        hint="name a step that all ranks recorded.",
    )


def _numbered(names: tuple[str, ...], number: str) -> str:
    """Name of the step with a number; empty if there is none."""
    return next((names[at] for at in numbered_steps(names, number)), "")


def listed(ranks: Sequence[int], most: int = 8) -> str:
    """Some ranks in words; the first `most` by number."""
    more = ", …" if len(ranks) > most else ""
    return ", ".join(map(str, ranks[:most])) + more


def _median(summaries: Mapping[int, RankSummary]) -> str:
    """The step of median length over all ranks, of the steps that are typical on each."""
    alike = [summary.alike_ns for summary in summaries.values()]
    common = [name for name in alike[0] if all(name in other for other in alike)]
    if not common:
        raise QueryError(
            "there is no median step: no step is typical on every rank.",
            hint=f"name a step, or take {FIRST} or {LAST}; steady_state shows why.",
        )
    lengths = sorted((sum(of_rank[name] for of_rank in alike), name) for name in common)
    return lengths[(len(lengths) - 1) // 2][1]


def _warn_of_others(steps: Mapping[int, tuple[str, ...]], window: str) -> None:
    """Warn if a pattern or a name fits several steps of a rank."""
    fits = compile_pattern(window)
    for rank, names in steps.items():
        found = [name for name in names if name == window] or [n for n in names if fits(n)]
        if len(found) > 1:
            taken = f"{found[0]} of rank {rank}, and so on every rank"
            warn_of_others(window, len(found), taken, stacklevel=4)
            return
