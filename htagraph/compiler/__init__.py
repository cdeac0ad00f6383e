"""EventTable -> Dag: one file per edge kind, each a pure function from the structure of a trace to edges."""
