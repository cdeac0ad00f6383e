"""What is said to who trains, beside the output of the training."""

from __future__ import annotations

import sys
from contextlib import suppress

from htagraph.capture.place import Place

__all__ = ["answer", "say"]


def say(message: object, place: Place | None = None) -> None:
    """Say something in one line on the error stream; that it fails is no reason to fail."""
    of_rank = f" (rank {place.rank})" if place is not None and place.world_size > 1 else ""
    with suppress(Exception):  # the stream may be closed, or of a notebook that is gone
        sys.stderr.write(f"htagraph{of_rank}: {' '.join(str(message).split())}\n")
        sys.stderr.flush()


def answer(text: str) -> None:
    """Write an answer to the output, in one piece."""
    with suppress(Exception):
        sys.stdout.write(text)
        sys.stdout.flush()
