"""One adapter per protocol of an operation."""
