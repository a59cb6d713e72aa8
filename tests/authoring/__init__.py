"""Tools for authors."""
