"""Algorithms over arrays that know nothing of traces: nesting, binding, re-timing, reachability."""
