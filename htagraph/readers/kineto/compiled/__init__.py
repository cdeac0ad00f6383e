"""Functions over bytes, compiled by numba; see `machine`."""
