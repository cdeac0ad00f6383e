"""Reads execution traces of PyTorch (Chakra host ET) beside a trace of its profiler.

The way: `nodes` (JSON to columns) -> `correlation` (which node is which event) -> `dependencies`
(which operator on another thread wrote what an operator reads) -> `reader` (columns and flow points
of the recording).
"""

from htagraph.readers.execution_trace.reader import is_execution_trace, with_execution_trace

__all__ = ["is_execution_trace", "with_execution_trace"]
