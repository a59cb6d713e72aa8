"""How many descriptors the processes of the service may have."""

from __future__ import annotations

import resource


def allow_all() -> None:
    """Have as many as the system allows at most, here and in processes that are started later.

    What it gives at first is often 1024, for the sake of programs that use `select`. Connections,
    those to other workers, to upstreams and to the registry take one each.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
