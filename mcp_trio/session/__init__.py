"""Trio begins here: the pump of a connection, the one dispatch, and what a handler sees."""
