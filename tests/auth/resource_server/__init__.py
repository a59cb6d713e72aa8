"""A server that says who calls."""
