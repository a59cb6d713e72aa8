"""Why a TLS handshake failed, in words: libraries say so only in the causes of their errors."""

from __future__ import annotations

import ssl


def handshake_reason(error: BaseException) -> str | None:
    """What TLS says of a failure; None if it was something else."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError) and cause.reason:
            return f"no TLS with it: {cause.reason.replace('_', ' ').lower()}"
        cause = cause.__cause__ or cause.__context__
    return None
