"""Bytes to frames and headers to verdicts: small machines that do no input or output."""
