"""Messages and the codec."""
