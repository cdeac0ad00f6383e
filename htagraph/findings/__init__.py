"""What bounds a run: causes of its critical path, with evidence, worth and what to try."""
