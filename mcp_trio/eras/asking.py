"""What a client may be asked, by what it declared and by the revision (F1, F3, F4, R3).

Nothing here asks. The refusals name the capability that is missing, as an object that the
client could have declared.
"""

from __future__ import annotations

from typing import cast

from mcp_trio.errors import MissingCapabilityError
from mcp_trio.wire import Revision
from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.elicitation import forms_exist, pages_exist
from mcp_trio.wire.sampling import tool_use_exists


def _declared(capabilities: JSONObject, name: str) -> JSONObject | None:
    value = capabilities.get(name)
    return cast("JSONObject", value) if isinstance(value, dict) else None


def missing(what: str, required: JSONObject) -> MissingCapabilityError:
    """The refusal to ask for something."""
    return MissingCapabilityError(
        f"The client cannot be asked: {what}", data={"requiredCapabilities": required}
    )


def check_form(capabilities: JSONObject, revision: Revision) -> None:
    """See whether the user can be given a form. An empty capability means just that.

    Raises:
        MissingCapabilityError: not this client, or not in this revision.
    """
    declared = _declared(capabilities, "elicitation")
    if declared is None or not forms_exist(revision):
        raise missing("it has no elicitation", {"elicitation": {}})
    if "form" not in declared and "url" in declared and pages_exist(revision):
        raise missing("it shows no forms", {"elicitation": {"form": {}}})


def opens_pages(capabilities: JSONObject, revision: Revision) -> bool:
    """Tell whether the client opens pages and hears of them."""
    declared = _declared(capabilities, "elicitation")
    return declared is not None and "url" in declared and pages_exist(revision)


def check_page(capabilities: JSONObject, revision: Revision) -> None:
    """See whether the user can be sent to a page.

    Raises:
        MissingCapabilityError: not this client, or not in this revision.
    """
    if not opens_pages(capabilities, revision):
        raise missing("it opens no pages", {"elicitation": {"url": {}}})


def check_sampling(
    capabilities: JSONObject, revision: Revision, *, tools: bool, context: bool
) -> None:
    """See whether the client's model can be used.

    Args:
        capabilities: of the client.
        revision: in use.
        tools: the model shall be offered tools.
        context: it shall see what other servers have said.

    Raises:
        MissingCapabilityError: not this client, or not in this revision.
    """
    declared = _declared(capabilities, "sampling")
    if declared is None:
        raise missing("it has no sampling", {"sampling": {}})
    if tools and not ("tools" in declared and tool_use_exists(revision)):
        raise missing("its model takes no tools", {"sampling": {"tools": {}}})
    # Before tools were declared, the context was for the client alone to decide.
    if context and "context" not in declared and tool_use_exists(revision):
        raise missing("its model is given no context", {"sampling": {"context": {}}})


def check_roots(capabilities: JSONObject) -> None:
    """See whether the client has roots.

    Raises:
        MissingCapabilityError: it has not.
    """
    if _declared(capabilities, "roots") is None:
        raise missing("it has no roots", {"roots": {}})
