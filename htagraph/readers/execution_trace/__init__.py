"""Adds an execution trace of PyTorch (Chakra host ET) to a trace of its profiler.

`nodes` (JSON to columns) -> `correlation` (which node is which event, and which operators exchange
tensors between threads) -> `reader` (columns and flow points of the recording).
"""
