"""`MCPClient`: one connection to one server, in whichever era the server speaks."""
