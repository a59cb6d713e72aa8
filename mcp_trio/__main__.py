"""The `mcp-trio` command, also as `python -m mcp_trio`."""

import sys


def main() -> None:
    """Run the command. Ctrl-C ends it plainly at any time, also while it is being loaded."""
    try:
        from mcp_trio.cli import main as command  # noqa: PLC0415 - see above
        from mcp_trio.cli.interrupts import leave_at_once  # noqa: PLC0415

        # Here and not in the command: a program that runs it by itself keeps its signals.
        leave_at_once()
        command()
    except KeyboardInterrupt:
        sys.stderr.write("cancelled\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
