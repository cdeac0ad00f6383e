"""Reads SQLite exports of Nsight Systems (``nsys export --type sqlite``), of any version.

The way of the rows: `reports` (which file, which part) -> `export` (tables as columns) -> one part
for each table (`device_work`, `host_calls`, `waits`, `ranges`), named by `names` -> `parts` (one
event table). `ranks` says which processes of an export are ranks; `devices` and `gpu_metrics` read
what stands beside the events.
"""

from htagraph.readers.nsys.ranks import NsysRank, nsys_ranks
from htagraph.readers.nsys.reader import read_nsys
from htagraph.readers.nsys.reports import export_nsys, export_of, is_nsys, is_report

__all__ = [
    "NsysRank",
    "export_nsys",
    "export_of",
    "is_nsys",
    "is_report",
    "nsys_ranks",
    "read_nsys",
]
