"""Places that keep published operations, behind the `Registry` contract."""
