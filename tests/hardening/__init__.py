"""Attacks on a whole service. What is attacked, and how it is measured, is in `target`."""
