"""JSON-RPC 2.0: messages as values, and the codec between them and bytes."""
