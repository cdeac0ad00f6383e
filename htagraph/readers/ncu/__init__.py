"""Tables of Nsight Compute: metrics of kernels, as ``ncu --csv`` prints them."""
