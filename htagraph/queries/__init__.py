"""Dag -> DataFrame: a question is a pure function of a graph and a window."""
