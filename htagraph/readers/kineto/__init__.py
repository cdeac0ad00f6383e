"""Reads traces of PyTorch's profiler (Kineto): ``.json`` and ``.json.gz``, as they really are.

The way of the bytes: `chunks` (decompressed blocks) -> `stream` (pieces) -> `document` (header and events) -> `pieces`
(one worker) -> `scanner` (columns; `lexer`, `keys`, `values`, `interning`) -> `merging` -> `tables`; what the scanner
refuses goes through `mender`.
"""

from htagraph.readers.kineto.arguments import ArgsIndex
from htagraph.readers.kineto.doctor import Finding, examined
from htagraph.readers.kineto.reader import KinetoTrace, read_kineto
from htagraph.readers.kineto.repairs import Repair
from htagraph.readers.kineto.rewriting import repair_kineto

__all__ = ["ArgsIndex", "Finding", "KinetoTrace", "Repair", "examined", "read_kineto", "repair_kineto"]
