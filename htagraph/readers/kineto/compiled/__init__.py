"""What goes over bytes, compiled by numba; see `machine`."""
