"""The vocabulary: converter, revisions and the method table."""
