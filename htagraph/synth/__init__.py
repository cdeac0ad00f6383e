"""Traces with a known truth: drawn timelines and simulated ranks and jobs."""

from htagraph.synth.timeline import timeline

__all__ = ["timeline"]
