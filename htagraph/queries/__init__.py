"""Dag -> DataFrame: one question per file, each a pure function of a graph and a window."""
