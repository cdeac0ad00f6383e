"""Where things are in a graph: names, places in the call tree, windows, steps, sets of events."""
