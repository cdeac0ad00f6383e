"""What a device does, and what htagraph says of it: ``python -m tests.gpu --out FOLDER``.

``[--device cuda|cpu] [--only PART …]``: on a GPU, or on CPU tensors, which shows that the programs
run. Needs PyTorch. Writes small captures with the truth about them (``truth.json``) and
``tables.md``; nothing else should use the device meanwhile.

- pairs: six repairs, measured without a profiler, and predicted from the capture before
- roofs: products, memory and the host's link, against the peaks that htagraph knows
- operators: those whose operations and bytes are known by hand
- handling: steps recorded by `hg.profile`, and records of waits
- graphs: CUDA graphs as they are captured and as they are replayed
- sampling: what nvidia-smi sampled meanwhile, added to the traces
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import htagraph as hg
from tests.gpu.graphs import run_graphs
from tests.gpu.handling import run_handling
from tests.gpu.machine import Machine
from tests.gpu.operators import run_operators
from tests.gpu.pairs import run_pairs
from tests.gpu.roofs import run_roofs
from tests.gpu.sampling import sampled
from tests.gpu.tables import markdown

_PARTS = {
    "pairs": run_pairs,  # first, before any profiler has run
    "roofs": run_roofs,
    "operators": run_operators,
    "handling": run_handling,
    "graphs": run_graphs,
}


def run(machine: Machine, out: Path, parts: Sequence[str]) -> dict[str, Any]:
    """Run some parts, and what they found."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    if not machine.is_gpu:
        torch.set_num_threads(1)  # several wait for each other on a busy machine
    results: dict[str, Any] = {
        "device": machine.name,
        "torch": torch.__version__,
        "parts": {},
        "seconds": {},
    }
    with sampled(out) as log:
        for part in parts:
            begin = time.perf_counter()
            results["parts"][part] = _found(_PARTS[part], machine, out)
            results["seconds"][part] = time.perf_counter() - begin
            print(f"{part}: {results['seconds'][part]:.1f} s", flush=True)
    if log is not None:
        results["parts"]["sampling"] = _found(_attached, out, log)
    return results


def _found(part: Callable[..., dict[str, Any]], *given: object) -> dict[str, Any]:
    """What a part found, or its error: the others are worth having."""
    try:
        return part(*given)
    except Exception:  # noqa: BLE001  of any torch, any device
        return {"error": traceback.format_exc()}


def _attached(out: Path, log: Path) -> dict[str, Any]:
    """What the log adds to the capture that took longest."""
    traces = out.glob("*.pt.trace.json.gz")
    longest = max(traces, key=_span_ns)
    attached = hg.load(longest, beside=[log]).attached.iloc[0]
    said = {key: str(attached[key]) for key in ("instrument", "n", "n_matched", "detail")}
    return {"rows": [{"trace": longest.name} | said]}


def _span_ns(file: Path) -> int:
    return hg.load(file).compile().dur_ns


def main() -> None:
    """Run, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(_PARTS), default=list(_PARTS))
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU: give --device cpu.")
    results = run(Machine(asked.device), asked.out, asked.only)
    (asked.out / "truth.json").write_text(json.dumps(results, indent=1) + "\n")
    (asked.out / "tables.md").write_text(markdown(results))
    print(markdown(results))
    sys.exit(any("error" in results["parts"][part] for part in asked.only))


if __name__ == "__main__":
    main()
