"""Which files here are no tests."""

collect_ignore = ["training.py"]  # a program that needs torch
