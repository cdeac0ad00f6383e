"""Many ranks: loading, clocks, matched collectives, lateness, the path across ranks."""
