"""How much of a critical path rests on inferred dependencies, in one sentence."""

from __future__ import annotations

import pandas as pd

__all__ = ["inferred_in_words"]

_TOP = 3
_WORTH_SAYING = 0.0005


def inferred_in_words(segments: pd.DataFrame) -> str:
    """Share of a path on inferred edges, and of the rules with most of it; empty for 0.0%.

    Examples
    --------
    >>> path = pd.DataFrame({
    ...     "dur_ns": [60, 40], "rule": ["duration", "hand-over"], "is_inferred": [False, True]
    ... })
    >>> inferred_in_words(path)
    '40.0% of the path is inferred: hand-over 40.0%.'
    """
    whole_ns = max(int(segments["dur_ns"].sum()), 1)
    inferred = segments[segments["is_inferred"]]
    by_rule = inferred.groupby("rule", observed=True)["dur_ns"].sum() / whole_ns
    by_rule = by_rule[by_rule >= _WORTH_SAYING].sort_values(ascending=False, kind="stable")
    if by_rule.empty:
        return ""
    named = ", ".join(f"{rule} {share:.1%}" for rule, share in by_rule.head(_TOP).items())
    more = ", …" if len(by_rule) > _TOP else ""
    share = int(inferred["dur_ns"].sum()) / whole_ns
    return f"{share:.1%} of the path is inferred: {named}{more}."
