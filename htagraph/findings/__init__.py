"""What limits a run: causes of its critical path, with evidence, worth and what to try."""
