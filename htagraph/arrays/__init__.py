"""Pure functions over columns: intervals, walks, matching; and how they are compiled."""
