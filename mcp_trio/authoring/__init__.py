"""Tools for the authors of operations: check, compare, import, publish, try.

Processes of their own. A server loads nothing of this package, and nothing of the libraries
that only this package needs (extra `authoring`).
"""
