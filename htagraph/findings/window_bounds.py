"""What bounds a window of one rank."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

import pandas as pd

from htagraph.explain.busy_time import busy_time
from htagraph.explain.replay_time import replay_time
from htagraph.findings.advice import OTHER_RANKS
from htagraph.findings.context import find_context
from htagraph.findings.findings import Told, charged
from htagraph.findings.judged_part import judged_part
from htagraph.findings.replays import replays_in_words
from htagraph.findings.verdict import Verdict
from htagraph.findings.worth import bounded, predicted
from htagraph.lookup.find_window import WHOLE
from htagraph.path import CriticalPath
from htagraph.queries.opportunities import opportunities_of, opportunities_on
from htagraph.queries.quality import UNEXPLAINED_LIMIT

__all__ = ["find_bounds", "find_opportunities"]


def find_opportunities(path: CriticalPath) -> pd.DataFrame:
    """What would help the window of a critical path; schema `answers.OPPORTUNITIES`."""
    if path.excerpt.n_steps:
        return opportunities_of(path.excerpt)
    return opportunities_on(path.dag, path.window, path.segments, path.attributed_time)


def find_bounds(
    path: CriticalPath,
    *,
    opportunities: pd.DataFrame | None = None,
) -> Verdict:
    """Verdict on a window: what its critical path is charged to, largest potential saving first.

    Parameters
    ----------
    opportunities : DataFrame, schema `answers.OPPORTUNITIES`, optional
        Of the window, where they are at hand.

    Returns
    -------
    Verdict
        Withheld where too much of the path is unexplained to tell.

    Examples
    --------
    >>> import htagraph as hg
    >>> path = hg.load(hg.demo_trace("dataloader")).compile().critical_path()
    >>> find_bounds(path).findings[0].cause
    'data loading'
    """
    context = find_context(path.dag, path.window)
    found = find_opportunities(path) if opportunities is None else opportunities
    is_whole = len(found) > 0 and not path.excerpt.n_steps
    by_busy_time = None if is_whole else bounded(busy_time(path.dag, path.window), path.dur_ns)
    told = Told(
        context=context,
        unread_stacks=path.dag.notes.get("n_unread_stacks", 0) > 0,
        worth=predicted(found, by_busy_time),
    )
    verdict = charged(path.attributed_labels, path.window_name, path.dur_ns, told)
    causes = {finding.cause for finding in verdict.top_findings}
    waits = found["cause"].isin(causes) & (found["alone_ns"] < found["saves_ns"])
    if waits.any():
        verdict = replace(verdict, low_ends=OTHER_RANKS)
    if len(found):
        verdict = replace(verdict, rests_on=path.excerpt.sentence)
    if context.is_replayed:
        said = replays_in_words(replay_time(path.dag, path.window))
        verdict = replace(verdict, replays=said)
    if not verdict.withheld:
        return verdict
    return replace(verdict, withheld=f"{verdict.withheld} {_next_command(path)}")


def _next_command(path: CriticalPath) -> str:
    """What to run where a window cannot be judged: the report on a part of it that can."""
    file = path.origin.path if path.origin is not None else None
    name = quote(str(file)) if file is not None else "FILE"
    if not path.dur_ns:
        if path.dag.span.dur_ns:
            return f"All of the trace: htagraph report {name} -w {WHOLE}"
        return f"What was recorded: htagraph info {name}"
    part = judged_part(path, UNEXPLAINED_LIMIT)
    if part is None:
        return f"No part of it can be judged; all checks: htagraph info {name}"
    origin_ns = path.dag.span.start_ns
    times = f"{part.start_ns - origin_ns}:{part.end_ns - origin_ns}"
    share = f"{part.dur_ns / path.dur_ns:.0%}"
    return f"{share} of it can be judged: htagraph report {name} -w {times}"
