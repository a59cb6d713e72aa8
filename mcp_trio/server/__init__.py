"""`MCPServer`: what is offered, how functions become tools, who else may provide them."""
