"""The five stages a call can fail in, and how a failure reads.

A stage is never lost: it stands in the text for the model and in `_meta` for programs.
What raises is elsewhere; text of an upstream comes through `clean` first.
"""

from __future__ import annotations

import enum
import html
import logging
import re
from collections.abc import Callable, Sequence

import attrs

from mcp_trio.json_schema import Violation
from mcp_trio.wire import CallToolResult, ContentBlock, JSONObject, TextContent

ERROR_KEY = "io.github.mcp-trio/error"
"""Under which `_meta` of a failed call tells programs what happened."""
WARNING_KEY = "io.github.mcp-trio/warning"
"""Under which `_meta` of a good call tells what is missing from its result."""
MAX_UPSTREAM_TEXT = 500
"""Characters of an upstream's own text in an error."""


class Stage(enum.StrEnum):
    """Where a call failed."""

    SCHEMA_VALIDATION = "schema_validation"
    """Arguments break the input schema, or the result the output schema."""
    MAPPING = "mapping"
    """A value could not be put into the request, or taken out of the answer."""
    ADAPTER_EXECUTION = "adapter_execution"
    """The upstream was not reached, not in time, or did not speak the protocol."""
    EXTERNAL_SERVICE = "external_service"
    """The upstream answered, with a failure."""
    INTERNAL_RUNTIME = "internal_runtime"
    """A fault of ours."""


_STEPS: dict[str, str] = {
    "input": "Correct the arguments and call again.",
    "output": "Calling again will not help; report the operation to its operator.",
    "kept": "The call was made, and its result follows as it came; calling again will not help.",
    "mapping": "Check the arguments; if they are right, report the operation to its operator.",
    "request_bytes": "Send less data.",
    "response_bytes": "Ask for less, for example with a filter or a smaller page.",
    "operator": "Report the operation to its operator.",
    "retryable": "Try again later.",
    "final": "Check the arguments against the message before calling again.",
    "bug": "Report the reference to the operator.",
}


class StageError(Exception):
    """A call that failed in a stage. The text is for the model: no secrets, bounded."""

    def __init__(  # noqa: PLR0913  # the keyword-only parts of one failure
        self,
        stage: Stage,
        message: str,
        *,
        sub: str,
        code: str | int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        upstream_status: int | None = None,
        violations: Sequence[Violation] = (),
        step: str | None = None,
        kept: Sequence[ContentBlock] = (),
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.message = message
        self.sub = sub
        """What kind of failure within the stage."""
        self.code = sub if code is None else code
        """The upstream's own code if it gave one, else the same as `sub`."""
        self.retryable = retryable
        self.retry_after = retry_after
        """Seconds the upstream asked to wait."""
        self.upstream_status = upstream_status
        self.violations = tuple(violations)
        self.kept = tuple(kept)
        """What the caller is given all the same."""
        self._step = step

    @property
    def step(self) -> str:
        """The one next step."""
        known = _STEPS.get(self._step) if self._step else _STEPS.get(self.sub)
        return known or _STEPS["retryable" if self.retryable else "final"]


@attrs.frozen(kw_only=True)
class Whose:
    """Which call of which operation failed."""

    operation_id: str
    revision: str
    request_id: int | str


def failed(error: StageError, whose: Whose, mask: Callable[[str], str]) -> CallToolResult:
    """The result of a call that failed. It has no structured content: older clients check that.

    Args:
        error: what happened.
        whose: the call.
        mask: takes out secrets, whoever put them there.
    """
    told: JSONObject = {
        "stage": str(error.stage),
        "sub": error.sub,
        "code": mask(error.code) if isinstance(error.code, str) else error.code,
        "retryable": error.retryable,
        "retry_after_ms": None if error.retry_after is None else int(error.retry_after * 1000),
        "upstream_status": error.upstream_status,
        "operation_id": whose.operation_id,
        "revision": whose.revision,
        "request_id": whose.request_id,
        "violations": [violation.as_json() for violation in error.violations],
    }
    message = mask(error.message).rstrip(". ")
    return CallToolResult(
        content=[TextContent(text=f"[{error.stage}] {message}. {error.step}"), *error.kept],
        is_error=True,
        meta={ERROR_KEY: told},
    )


def log_level(error: StageError) -> int:
    """How loud a failure is told to the operator.

    Faults of the caller's are his own business, and failures that an upstream reports are its
    operator's; all else somebody here has to mend, or wait for.
    """
    if error.sub in {"input", "rate_limited"}:
        return logging.DEBUG
    if error.stage is Stage.EXTERNAL_SERVICE or error.sub in {"circuit_open", "shutdown"}:
        return logging.INFO
    return logging.WARNING


def log_text(error: StageError, mask: Callable[[str], str]) -> str:
    """A failure for the operator: with the cause if nobody was reached, without upstreams' text."""
    code = "" if error.code == error.sub else f" {told(str(error.code), mask)[:80]}"
    text = f"{error.stage}, {error.sub}{code}"
    if error.stage is Stage.EXTERNAL_SERVICE:
        return text
    why = _cause(error, mask) if error.sub in {"connect", "tls"} else ""
    return f"{text}: {mask(error.message)}" + (f": {why}" if why else "")


def _cause(error: BaseException, mask: Callable[[str], str]) -> str:
    """The deepest of the causes that says anything."""
    said = ""
    seen: list[BaseException] = [error]
    for found in seen:
        inner = found.__cause__ or found.__context__
        nested: tuple[object, ...] = getattr(found, "exceptions", ())
        # Libraries give a cause again as an argument, and it may lead in a circle.
        for each in (inner, *nested, *found.args):
            if isinstance(each, BaseException) and each not in seen:
                seen.append(each)
        if found is not error and not isinstance(found, BaseExceptionGroup):
            said = told(str(found), mask) or said
    return said


_DROPPED = re.compile(
    r"<(script|style|head)\b.*?(</\1\s*>|\Z)|<!--.*?(-->|\Z)", re.DOTALL | re.IGNORECASE
)
_TAG = re.compile(r"</?[A-Za-z!][^<>]{0,2000}>?")
_TRACE = re.compile(
    r"Traceback \(most recent call last\)|^[ \t]*at [\w$.<>]+\(|"
    r'^[ \t]*File "[^"\n]*", line \d+|^[ \t]+at [^\n]*:\d+:\d+|^goroutine \d+ \[',
    re.MULTILINE,
)


def told(text: str, mask: Callable[[str], str]) -> str:
    """An upstream's text, fit to be repeated: without secrets, and clean."""
    # Before cleaning, because cutting could leave half a secret; after, because cleaning decodes
    # character references.
    return mask(clean(mask(text)))


def clean(text: str) -> str:
    """Make an upstream's text fit to be repeated: no markup, no stack trace, one short line."""
    # Far more than is kept, and little enough for the patterns below.
    text = text[: MAX_UPSTREAM_TEXT * 40]
    if "<" in text:
        text = html.unescape(_TAG.sub(" ", _DROPPED.sub(" ", text)))
    trace = _TRACE.search(text)
    if trace is not None:
        text = text[: trace.start()]
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= MAX_UPSTREAM_TEXT else text[: MAX_UPSTREAM_TEXT - 1] + "…"
