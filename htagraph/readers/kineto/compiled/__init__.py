"""Functions over the bytes of a trace, compiled."""
