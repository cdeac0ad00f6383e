"""Files in, event tables out."""
