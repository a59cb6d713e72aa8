"""The `mcp-trio` command, also as `python -m mcp_trio`."""

import sys


def main() -> None:
    """Run the command. Ctrl-C ends it plainly at any time, also while it is being loaded."""
    try:
        from mcp_trio.cli import main as command  # noqa: PLC0415 - see above

        command()
    except KeyboardInterrupt:
        sys.stderr.write("cancelled\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
