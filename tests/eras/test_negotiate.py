"""How a client finds the era of its server (V8 to V10): the table, and how errors are read."""

from __future__ import annotations

import itertools

import pytest

from mcp_trio.eras.negotiate import (
    TABLE,
    Reply,
    Step,
    best_common,
    classify,
    following,
    nothing_common,
    supported_by,
)
from mcp_trio.errors import (
    MCPError,
    RemoteError,
    RequestTimeoutError,
    TransportClosedError,
    TransportError,
)
from mcp_trio.wire.revisions import BY_DATE, HANDSHAKE, REVISIONS, STATELESS

OPEN = {Step.DISCOVER, Step.DISCOVER_AGAIN, Step.INITIALIZE}


def refusal(code: int, supported: object = None) -> RemoteError:
    data = None if supported is None else {"supported": supported, "requested": "x"}
    return RemoteError("no", rpc_code=code, data=data)


@pytest.mark.parametrize(("step", "reply"), list(itertools.product(Step, Reply)), ids=str)
def test_every_pair_has_a_next_step_and_no_step_is_asked_twice(step: Step, reply: Reply) -> None:
    assert following(step, reply) is TABLE.get((step, reply), Step.FAIL)
    assert following(step, reply) is not step or step is Step.FAIL


def test_whatever_comes_the_guessing_ends_after_at_most_three_requests() -> None:
    for replies in itertools.product(Reply, repeat=3):
        step, asked = Step.DISCOVER, 0
        for reply in replies:
            if step not in OPEN:
                break
            asked += 1
            step = following(step, reply)
        assert step not in OPEN
        assert asked <= 3


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (refusal(-32022, ["2026-07-28"]), Reply.COMMON_STATELESS),
        (refusal(-32022, ["2025-11-25", "2026-07-28"]), Reply.COMMON_STATELESS),
        (refusal(-32022, ["2025-06-18", "2024-11-05"]), Reply.COMMON_HANDSHAKE),
        (refusal(-32022, ["2099-01-01"]), Reply.NOTHING_COMMON),
        (refusal(-32022, []), Reply.NOTHING_COMMON),
        (refusal(-32022), Reply.NOTHING_COMMON),
        (refusal(-32022, "2026-07-28"), Reply.NOTHING_COMMON),
        (refusal(-32022, [1, None, {"a": 1}]), Reply.NOTHING_COMMON),
        (refusal(-32020), Reply.STATELESS_ERROR),
        (refusal(-32021), Reply.STATELESS_ERROR),
        (refusal(-32601), Reply.OTHER),
        (refusal(-32600), Reply.OTHER),
        (refusal(-32602), Reply.OTHER),
        (refusal(-32000), Reply.OTHER),
        (refusal(0), Reply.OTHER),
        (RequestTimeoutError("silence"), Reply.OTHER),
        (TransportError("the server answered 400 without a reply"), Reply.OTHER),
    ],
    ids=lambda value: getattr(value, "name", None) or f"{value!r}",
)
def test_an_answer_to_the_probe_is_read_for_the_era_alone(error: MCPError, reply: Reply) -> None:
    assert classify(error, REVISIONS) is reply  # V8: no single code decides


def test_a_fault_of_our_own_is_no_answer() -> None:
    error = TransportClosedError("closed")
    with pytest.raises(TransportClosedError) as caught:
        classify(error, REVISIONS)
    assert caught.value is error


def test_what_is_common_depends_on_what_we_speak() -> None:
    error = refusal(-32022, ["2026-07-28", "2025-06-18"])
    assert classify(error, HANDSHAKE) is Reply.COMMON_HANDSHAKE
    assert classify(error, STATELESS) is Reply.COMMON_STATELESS
    assert classify(error, (BY_DATE["2024-11-05"],)) is Reply.NOTHING_COMMON


def test_the_newest_common_revision_is_chosen_and_unknown_names_are_only_names() -> None:
    names = ["2024-11-05", "9999-99-99", "2025-06-18", "zzz"]
    chosen = best_common(names, REVISIONS)
    assert chosen is BY_DATE["2025-06-18"]  # X9
    assert best_common([], REVISIONS) is None
    assert best_common(names, ()) is None


def test_the_versions_a_server_names_are_read_tolerantly() -> None:
    assert supported_by(refusal(-32022, ["a", 1, "b"])) == ["a", "b"]
    assert supported_by(RemoteError("no", rpc_code=-32022)) == []


def test_the_error_of_two_strangers_names_both_sides() -> None:
    error = nothing_common(STATELESS, ["2099-01-01"])
    assert "2099-01-01" in error.message
    assert error.data == {"supported": ["2099-01-01"], "requested": "2026-07-28"}
    assert "none" in nothing_common(STATELESS, []).message
