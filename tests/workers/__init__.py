"""Several processes: restarts, what is gathered of them, and their supervisor."""
