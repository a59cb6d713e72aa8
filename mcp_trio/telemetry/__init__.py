"""Listeners: what the package says about itself, made readable. Nothing below imports this."""
