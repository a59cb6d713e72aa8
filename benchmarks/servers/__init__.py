"""The programs under load. All offer the same tools and print their URL on standard error.

`ours` runs with this project's interpreter, `official` with the peers' (see `benchmarks.peers`).
"""
