"""What differs between the revisions."""
