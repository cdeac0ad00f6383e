"""Recording a run with torch.profiler: files that can be told apart, and a report at the end."""
