"""How far real traces are from their device: ``python -m tests.light_table``.

A row for each trace with device work and a known device: share of device time that has a model,
MFU, what the window would gain with all operators at their roofs and with each of the three of
largest cost, and what limits it then. Read it as an engineer would: a share above 1, a group that
is no operator, or a device that the run did not have is a defect. `LAWS` names those that can be
seen in numbers; the command ends with 1 if one is broken. Names of traces narrow it down.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import htagraph as hg
from htagraph.errors import HTAGraphError
from htagraph.model.kinds import in_words
from tests.real_traces import TRACES, located

_FURTHEST = 3
"""Operators in a row."""

LAWS = {
    "MFU or HFU above 1": lambda found: max(found["mfu"], found["hfu"]) > 1,
    "a share of the roof above 1": lambda found: any(one["roof"] > 1 for one in found["furthest"]),
    "more gained than there is": lambda found: found["gain"] > 1,
    "more modelled than there is": lambda found: found["modelled"] > 1,
}
"""What no row may have."""


def light_row(name: str) -> dict[str, object] | None:
    """The row of a trace; None without device work, None for its device if that is not known."""
    graph = hg.load(located(name)).compile()
    if not graph.dag.events.is_device.any():
        return None
    roofline = graph.roofline(by="shape")
    light, used = graph.speed_of_light(), graph.mfu()
    if not len(light):
        return {"name": name, "device": ", ".join(graph.dag.events.device_names) or "not recorded"}
    every, rest = light.iloc[0], light.iloc[1:]
    rest = rest[rest["limit"] != "unknown"]
    at_roof = hg.what_if(graph, hg.at_roof()).breakdown(by="bound")
    return {
        "name": name,
        "device": roofline.attrs.get("peaks", {}).get("device", "several"),
        "modelled": float(used.iloc[0]["modelled_share"]),
        "mfu": float(used.iloc[0]["mfu_share"]),
        "hfu": float(used["hfu_share"].max()),
        "gain": float(every["cost_share"]),
        "furthest": [
            {
                "group": one["group"],
                "roof": float(one["roof_share"]),
                "limit": one["limit"],
                "cost": float(one["cost_share"]),
            }
            for one in rest.head(_FURTHEST).to_dict("records")
        ],
        "then": f"{in_words(str(at_roof.index[0]))} {at_roof.iloc[0]['share']:.0%}",
    }


def _printed(found: dict[str, object]) -> str:
    """A row of the table, as Markdown."""
    if "mfu" not in found:
        return f"| {found['name']} | {found['device']} | | | | no operator with a known roof | |"
    furthest = "<br>".join(
        f"{one['group']}: {one['roof']:.0%} of {one['limit']}, {one['cost']:.1%}"
        for one in found["furthest"]  # type: ignore[attr-defined]
    )
    shares = " | ".join(f"{found[key]:.1%}" for key in ("modelled", "mfu", "gain"))
    return f"| {found['name']} | {found['device']} | {shares} | {furthest} | {found['then']} |"


def main(args: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a law is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("names", nargs="*", help="parts of the names of traces; none: all")
    wanted = parser.parse_args(args).names
    print("| trace | device | modelled | MFU | all at roof | furthest: roof, cost | then |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    broken = []
    for name in TRACES:
        if not located(name).is_file() or (wanted and not any(part in name for part in wanted)):
            continue
        began = time.perf_counter()
        try:
            found = light_row(name)
        except HTAGraphError as exc:
            print(f"{name}: {exc}", file=sys.stderr)
            continue
        if found is None:
            continue
        print(_printed(found), flush=True)
        print(f"{name}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
        if "mfu" in found:
            broken += [f"{name}: {said}" for said, is_so in LAWS.items() if is_so(found)]
    print(*broken, sep="\n", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
