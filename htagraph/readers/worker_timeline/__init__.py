"""Timelines of all workers of a job in one file, as in ByteDance's StragglerAnalysis."""
