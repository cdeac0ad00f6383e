"""From a graph to the run that it would have been: the times of all events under changes."""
