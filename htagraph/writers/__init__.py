"""Files of graphs and paths for other tools: Perfetto, Chrome's trace viewer, Graphviz."""
