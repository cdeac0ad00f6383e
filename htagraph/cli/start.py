"""What the command `htagraph` runs: it ends in silence on Ctrl-C, also while its code is loaded."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["start"]

_INTERRUPTED = 130


def start() -> None:
    """Run the command line; exit code 130 where it is interrupted."""
    # Extension modules would turn the interrupt into an ImportError of theirs.
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from htagraph.cli.main import main  # noqa: PLC0415  it takes a second, in which one may stop

    signal.signal(signal.SIGINT, before)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    start()
