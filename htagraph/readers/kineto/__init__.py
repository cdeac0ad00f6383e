"""Reads traces of PyTorch's profiler (Kineto): ``.json`` and ``.json.gz``, as they really are.

The way of the bytes: `chunks` (decompressed blocks) -> `stream` (pieces) -> `document` (header and
events) -> `worker` (one thread) -> `compiled.scanner` (columns; `lexer`, `keys`, `values`,
`interning`) -> `parts` -> `merging` -> `cleaning` -> `tables`. What the scanner refuses goes
through `mending` and `compiled.mender`. Memory: about 140 bytes per event, and a few megabytes for
the pieces that are being scanned, whatever the size of the file.
"""

from htagraph.readers.kineto.reader import read_kineto
from htagraph.readers.kineto.rewriting import repair_kineto

__all__ = ["read_kineto", "repair_kineto"]
