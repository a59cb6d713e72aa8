"""Where protocol history lives: what differs between the handshake and the stateless era.

An era turns a request into an `Admitted` value before any task exists, and dresses the
outcome for the wire. Everything above works on those two and knows no revision.
"""
