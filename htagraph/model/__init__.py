"""What things are: events, edges, windows and the vocabularies; numpy and pandas only."""
