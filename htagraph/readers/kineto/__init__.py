"""Reads traces of PyTorch's profiler (Kineto): ``.json`` and ``.json.gz``, as they really are.

The way of the bytes: `chunks` (decompressed blocks) -> `stream` (pieces) -> `document` (header and events) -> `pieces`
(one worker) -> `scanner` (columns; `lexer`, `keys`, `values`, `interning`) -> `merging` -> `tables`; what the scanner
refuses goes through `mender`.
"""

from htagraph.readers.kineto.arguments import ArgsIndex
from htagraph.readers.kineto.reader import KinetoTrace, read_kineto
from htagraph.readers.kineto.repairs import Repair

__all__ = ["ArgsIndex", "KinetoTrace", "Repair", "read_kineto"]
