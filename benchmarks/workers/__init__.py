"""Programs that measure inside themselves and print seconds as one JSON array.

One of each pair runs with this project's interpreter, the other with the peers'. They do the same
work in the same order; what the numbers mean is said by the benchmark that starts them.
"""
