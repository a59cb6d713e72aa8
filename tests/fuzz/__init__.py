"""Coverage-guided fuzzing of what reads the bytes of others: see `targets`."""
