"""Lengths and shares as a person writes them: 120ms, 10%."""

from __future__ import annotations

import re

import typer

from htagraph.model.units import TIME_UNITS

_DURATION = re.compile(r"(\d+(?:\.\d*)?) ?(ns|us|ms|s)")
_SHARE = re.compile(r"(\d+(?:\.\d*)?) ?(%?)")


def duration_of(text: str) -> float:
    """A length in nanoseconds.

    Raises
    ------
    typer.BadParameter
        If it is none, or has no unit.

    Examples
    --------
    >>> duration_of("120ms"), duration_of("1.5 s")
    (120000000.0, 1500000000.0)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no length: give a number and ns, us, ms or s.")
    return float(found[1]) * TIME_UNITS[found[2]]


def share_of(text: str) -> float:
    """A share of 1.

    Raises
    ------
    typer.BadParameter
        If it is none: a number above 1 without a percent sign is not.

    Examples
    --------
    >>> share_of("5%"), share_of("0.05")
    (0.05, 0.05)
    """
    found = _SHARE.fullmatch(text.strip())
    value = None if found is None else float(found[1]) / (100 if found[2] else 1)
    if value is None or (value > 1 and not (found and found[2])):
        raise typer.BadParameter(f"{text!r} is no share: give 5% or 0.05.")
    return value
