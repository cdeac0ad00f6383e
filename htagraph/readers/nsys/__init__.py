"""Reads SQLite exports of Nsight Systems (``nsys export --type sqlite``) of any version.

The path of the rows: `export` (tables as columns) -> a function per table (`device_work`, `host`)
-> `table_rows` (one event table) -> `reader`. `ranks` finds the processes that are ranks.
"""
