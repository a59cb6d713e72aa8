"""Frames, headers and verdicts."""
