"""The protocol's moving parts without input or output: bookkeeping, tables, cursors."""
