"""htagraph: a graph-centric critical path and dependency analyzer for PyTorch traces."""
