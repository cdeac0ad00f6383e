"""Reads SQLite exports of Nsight Systems (``nsys export --type sqlite``), of any version.

The way of the rows: `reports` (which file, which part) -> `export` (tables as columns) -> one part
for each table (`device_work`, `host_calls`, `waits`, `ranges`), named by `names` -> `parts` (one
event table). `ranks` says which processes of an export are ranks; `devices` and `gpu_metrics` read
what stands beside the events.
"""
