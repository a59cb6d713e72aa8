"""Several processes that serve one port: a parent that keeps workers, and what they tell it.

The parent has no catalog and serves no client. What a worker does is written in `cli.worker`.
"""
