"""What coding agents ask: tools over stdio with short answers, and files of one folder only."""
