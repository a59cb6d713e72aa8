"""What the value of a setting must be, said once beside its field: as check and as text.

A `Rule` is an attrs validator of a class of settings. The reader of settings asks it too, so as
to collect the faults of all fields, and the table in the documentation shows its text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

from mcp_trio.errors import ConfigurationError


@attrs.frozen
class Rule:
    """A condition on a value; None, where the type of a field allows it, always holds."""

    text: str
    """What it demands, such as `must be greater than 0`."""
    holds: Callable[[Any], bool] = attrs.field(repr=False)

    def check(self, value: object) -> None:
        """Judge a value.

        Raises:
            ConfigurationError: with the text of the rule.
        """
        if value is not None and not self.holds(value):
            raise ConfigurationError(self.text)

    def __call__(self, _: object, field: attrs.Attribute[Any], value: object) -> None:
        """Judge a value of a field, as attrs does for whoever makes an instance.

        Raises:
            ConfigurationError: with the name of the field.
        """
        try:
            self.check(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{field.name}: {error}") from None


POSITIVE = Rule("must be greater than 0", lambda number: number > 0)
FINITE = Rule("must be greater than 0, and finite", lambda number: 0 < number < math.inf)
NOT_NEGATIVE = Rule("must be 0 or more", lambda number: number >= 0)
PORT = Rule("must be 0 to 65535", lambda number: 0 <= number <= 65535)
NOT_EMPTY = Rule("must not be empty", lambda text: text.strip() != "")
