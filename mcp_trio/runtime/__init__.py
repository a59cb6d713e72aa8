"""Running an operation: the five stages, adapters, connections and policies."""
