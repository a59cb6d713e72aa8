"""The catalog: published operations, kept as one immutable snapshot that refreshes itself."""
