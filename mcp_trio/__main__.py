"""`python -m mcp_trio` is the `mcp-trio` command."""

from mcp_trio.cli import main

if __name__ == "__main__":
    main()
