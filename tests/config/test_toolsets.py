"""Toolsets of the settings: what cannot be one is explained."""

import pytest

from mcp_trio.config import parse_settings
from mcp_trio.errors import ConfigurationError


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"toolsets": {"a/b": {"names": ["*"]}}}, "must match"),
        ({"toolsets": {"crm": {}}}, "toolsets.crm: has neither names nor tags"),
        ({"toolsets": {"crm": {"tags": ["x"], "search_above": -1}}}, "0 or more"),
        ({"toolsets": {"crm": {"tag": ["x"]}}}, "did you mean toolsets.crm.tags"),
    ],
)
def test_toolsets_that_cannot_be_are_explained(section, told):
    with pytest.raises(ConfigurationError, match=told):
        parse_settings({"catalog": {"registry": "r.sqlite"}, **section})
