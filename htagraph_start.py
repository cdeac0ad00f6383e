"""What the command `htagraph` runs: it ends in silence on Ctrl-C, also while its code is loaded.

It is beside the package because `import htagraph` takes most of that time.
"""

from __future__ import annotations

import sys

__all__ = ["start"]

_INTERRUPTED = 130


def start() -> None:
    """Run the command line; exit code 130 where it is interrupted."""
    try:
        from htagraph.cli.main import main  # noqa: PLC0415  it takes a second, in which one may stop

        main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    start()
