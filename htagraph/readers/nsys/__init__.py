"""Reads SQLite exports of Nsight Systems (``nsys export --type sqlite``) of any version.

The path of the rows: `reports` (which file, which part) -> `export` (tables as columns) -> one
reader per table (`device_work`, `host_calls`, `waits`, `ranges`) with names from `numbered_names`
-> `table_rows` (one event table). `ranks` finds the processes that are ranks, `devices` their
devices and sampled counters.
"""
