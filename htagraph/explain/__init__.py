"""Why a window took as long as it did: the critical path, and what its time is attributed to."""
