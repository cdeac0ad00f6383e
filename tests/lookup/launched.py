"""Drawings of launches and their kernels, some of them lost."""

from __future__ import annotations

from collections.abc import Collection

WIDTH = 20
"""Microseconds from one launch to the next."""


def drawing(
    n: int,
    *,
    lost: Collection[int] = (),
    unlinked: Collection[int] = (),
    on_9: Collection[int] = (),
    call: str = "cudaLaunchKernel",
    tail: str = "",
) -> str:
    """Calls every 20 us, and the kernel of each 2 us after it; of some, it is lost or unlinked."""
    cpu, streams = "", {"7": "", "9": ""}
    for at in range(n):
        linked = at not in lost and at not in unlinked
        cpu += f"[{call} >k{at}]".replace(f" >k{at}", f" >k{at}" if linked else "").ljust(WIDTH)
        kernel = "" if at in lost else f"  [k <k{at}   ]" if linked else "  [k        ]"
        for stream in streams:
            mine = (stream == "9") == (at in on_9)
            streams[stream] += (kernel if mine else "").ljust(WIDTH)
    rows = [f"cpu 1    |{cpu}{tail}", *(f"stream {name} |{row}" for name, row in streams.items())]
    return "\n".join(row for row in rows if "[" in row)
