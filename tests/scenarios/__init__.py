"""Behaviour × transport × revision."""
