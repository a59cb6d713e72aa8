"""The sans-I/O machines."""
