"""The report page: one HTML file with the verdict, figures and the tables behind them."""

from __future__ import annotations

from htagraph.reports.page.document import write_page

__all__ = ["write_page"]
