"""What the command `htagraph` runs: Ctrl-C ends it in one line, also while its code is loaded."""

from __future__ import annotations

import signal
import sys

from htagraph.cli.deferred import defer
from htagraph.cli.interrupts import INTERRUPTED, ends_at_once, is_interrupted, raises, say

__all__ = ["start"]


def start() -> None:
    """Run the command line; exit code 130 where it is interrupted."""
    ends_at_once()
    defer("pandas")
    from htagraph.cli.main import main  # noqa: PLC0415  it takes a second, in which one may stop

    try:
        raises()
        main()
    except BaseException:
        if not is_interrupted():
            raise
        say()
        sys.exit(INTERRUPTED)
    finally:
        # The answer is there, or what is left only has to be removed.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    start()
