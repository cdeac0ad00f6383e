"""What compute is worth: what its operators would save at the roof of the device, in words."""

from __future__ import annotations

from htagraph.lookup.clipping import device_work
from htagraph.model.units import human_duration
from htagraph.path import CriticalPath
from htagraph.queries.speed_of_light import speed_of_light
from htagraph.replay.excerpt import LARGE

__all__ = ["compute_in_words"]

_WORTH_NAMING = 0.02
"""Least share of the window that an operator saves at its roof to be named.

Chosen. Pinned by `test_light.py::test_an_operator_near_its_roof_is_not_named`.
"""
_MOST_WORK = 0.8
"""Share of device time with a model from which on the rest cannot change what is left to gain.

Chosen. Pinned by `test_light.py::test_little_is_said_if_little_has_a_model`.
"""
_LIMITS = {
    "compute": "the peak of its matrix units",
    "memory": "memory bandwidth",
    "host link": "the bandwidth of the link to the host",
}


def compute_in_words(path: CriticalPath) -> str:
    """What to speed up on the device, or that little is left to gain; empty if unknown."""
    part = path.excerpt
    if not part.n_steps and len(part.dag.edges) > LARGE:
        return ""
    found = speed_of_light(part.dag, part.window)
    if not len(found):
        return ""
    every, rest = found.iloc[0], found.iloc[1:]
    first = rest.iloc[0]
    if first["cost_share"] >= _WORTH_NAMING and first["limit"] in _LIMITS:
        saved = f"{first['cost_share']:.0%}"
        if not part.n_steps:
            saved = f"{human_duration(int(first['cost_ns']))} ({saved})"
        return (
            f"speed up {first['group']} first: it runs at {first['roof_share']:.0%} of "
            f"{_LIMITS[first['limit']]}, and at this roof the window would be {saved} shorter"
        )
    modelled = every["device_ns"] / max(int(device_work(part.dag, part.window).dur_ns.sum()), 1)
    if every["cost_share"] < _WORTH_NAMING and modelled >= _MOST_WORK:
        return (
            "its operators have little left to gain: all at their roofs, the window would be "
            f"{every['cost_share']:.1%} shorter; make them fewer or smaller"
        )
    return ""
