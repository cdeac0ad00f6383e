"""What compute is worth: how far its operators are from the roof of the device."""

from __future__ import annotations

from typing import NamedTuple

from htagraph.findings.path import CriticalPath
from htagraph.lookup.windowed import device_work
from htagraph.queries.roofline import speed_of_light
from htagraph.replay.excerpt import LARGE

_WORTH_NAMING = 0.02
"""Least share of the window that an operator saves at its roof to be named. Chosen. Pinned by
test_findings.
"""
_MOST_WORK = 0.8
"""Share of device time with a model from which on the rest cannot change what is left to gain.
Chosen. Pinned by test_findings.
"""
_LIMITS = {
    "compute": "the peak of its matrix units",
    "FP32 compute": "the peak of FP32",
    "memory": "memory bandwidth",
    "host link": "the bandwidth of the link to the host",
}


class Light(NamedTuple):
    """The operator that most would be gained by at its roof; or that little is left to gain."""

    operator: str = ""  # With its shapes, as `at_roof` takes it; empty if none is worth naming
    # Share of the roof that it reaches; without an operator, that all of them reach; 0 if unknown
    roof_share: float = 0.0
    limit: str = ""  # The operator's roof, in words
    # TF32 for products that run in FP32 would save more, and is not allowed
    wants_tf32: bool = False


def light_on(path: CriticalPath) -> Light:
    """What to speed up on the device, or how little is left to gain."""
    part = path.excerpt
    if not part.n_steps and len(part.dag.edges) > LARGE:
        return Light()
    found = speed_of_light(part.dag, part.window)
    if not len(found):
        return Light()
    every, first = found.iloc[0], found.iloc[1]
    tf32_ns = every["tf32_ns"]
    light = Light(wants_tf32=tf32_ns >= max(_WORTH_NAMING * part.window.dur_ns, first["cost_ns"]))
    if first["cost_share"] >= _WORTH_NAMING and first["limit"] in _LIMITS:
        share, limit = float(first["roof_share"]), _LIMITS[first["limit"]]
        return light._replace(operator=first["group"], roof_share=share, limit=limit)
    modelled = every["device_ns"] / max(int(device_work(part.dag, part.window).dur_ns.sum()), 1)
    if every["cost_share"] < _WORTH_NAMING and modelled >= _MOST_WORK:
        return light._replace(roof_share=float(every["roof_share"]))
    return light
