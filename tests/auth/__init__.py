"""Authorization of the client."""
