"""Streamable HTTP, server side: the ASGI application and the connection loop that carries it."""
