"""What a person reads about a run: summaries, as Markdown, JSON, plots and a page."""
