"""Joins the replays of CUDA and HIP graphs with the trace of their capture.

`captured_graphs` (launches between the begin and the end of each capture) -> `joining` (which
capture each replay is of) -> `reader` (the captured calls, and which of them launched what).
"""
