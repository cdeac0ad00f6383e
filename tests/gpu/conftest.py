"""Which files here are no tests."""

from pathlib import Path

# Programs that need torch; `test_on_a_device.py` runs them in processes of their own.
collect_ignore = [
    file.name for file in Path(__file__).parent.glob("*.py") if not file.name.startswith("test_")
]
