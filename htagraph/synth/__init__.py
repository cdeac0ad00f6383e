"""Traces drawn as text, whose critical path can be read off."""

from htagraph.synth.timeline import timeline

__all__ = ["timeline"]
