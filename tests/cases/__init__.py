"""What went wrong elsewhere, as tests of this server; `cases.toml` is the list."""
