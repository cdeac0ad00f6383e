"""What users hold: a trace, its graph, what is chosen and found in it, and how it is kept."""
