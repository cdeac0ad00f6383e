"""Recording a run with torch.profiler: a file per rank and cycle, and a report at the end."""
