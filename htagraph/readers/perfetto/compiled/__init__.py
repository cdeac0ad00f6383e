"""The functions over the bytes of a trace, compiled by numba."""
