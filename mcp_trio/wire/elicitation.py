"""Elicitation: the server asks the user, by a form or by a page of its own (F4 to F7)."""

from __future__ import annotations

import attrs

from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.marks import optional
from mcp_trio.wire.revisions import R2025_06_18, R2025_11_25, Revision


@attrs.frozen(kw_only=True)
class ElicitParams:
    """`elicitation/create`: a form (`requested_schema`) or a page to visit (`url`)."""

    message: str
    mode: str | None = optional(since=R2025_11_25)
    """`form`, which is also what nothing means, or `url`."""
    requested_schema: JSONObject | None = optional()
    url: str | None = optional(since=R2025_11_25)
    elicitation_id: str | None = optional(since=R2025_11_25, until=R2025_11_25)
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class ElicitResult:
    """What the user did: accept, decline or cancel; `content` only with an accepted form."""

    action: str
    content: JSONObject | None = optional()
    meta: JSONObject | None = optional(name="_meta", until=R2025_11_25)


@attrs.frozen(kw_only=True)
class ElicitationCompleteParams:
    """`notifications/elicitation/complete`: what the page was for is done (F7)."""

    elicitation_id: str
    meta: JSONObject | None = optional(name="_meta")


def forms_exist(revision: Revision) -> bool:
    """Tell whether a user can be asked to fill in a form in a revision."""
    return revision >= R2025_06_18


def pages_exist(revision: Revision) -> bool:
    """Tell whether a user can be sent to a page in a revision."""
    return revision >= R2025_11_25


def rich_forms(revision: Revision) -> bool:
    """Tell whether forms have defaults everywhere, titled options and several choices."""
    return revision >= R2025_11_25
