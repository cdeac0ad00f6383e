"""What a person reads about a run: findings and summaries, as Markdown, JSON, plots and a page."""
