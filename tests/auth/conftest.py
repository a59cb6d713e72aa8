"""No secret of a flow is logged."""

from tests.canary import no_secret_is_logged  # noqa: F401  # a fixture of all
