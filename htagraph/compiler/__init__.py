"""EventTable -> Dag: a file per edge kind, each a pure function from structure to edges."""
