"""Tables of Nsight Compute: metrics of kernels, as ``ncu --csv`` prints them."""

from htagraph.readers.ncu.kernel_metrics import is_ncu, with_ncu

__all__ = ["is_ncu", "with_ncu"]
