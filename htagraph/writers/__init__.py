"""A graph, a path or a trace into a file that other tools open: Perfetto, Chrome's trace viewer, Graphviz."""
