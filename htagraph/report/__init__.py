"""What a person is told about a run: findings, the summary of a window, and its Markdown and JSON forms."""
