"""How a client finds the era of its server (V8 to V10): the table, and how errors are read."""

from __future__ import annotations

import itertools

import pytest

from mcp_trio.eras.negotiate import (
    TABLE,
    EraCache,
    Reply,
    Step,
    best_common,
    classify,
    first_step,
    following,
    nothing_common,
    supported_by,
)
from mcp_trio.errors import (
    InvalidParamsError,
    MCPError,
    RemoteError,
    RequestTimeoutError,
    TransportClosedError,
    TransportError,
    UnauthorizedError,
    VersionMismatchError,
)
from mcp_trio.wire.revisions import BY_DATE, HANDSHAKE, REVISIONS, STATELESS

OPEN = {
    Step.DISCOVER,
    Step.DISCOVER_AGAIN,
    Step.INITIALIZE,
    Step.INITIALIZE_FIRST,
    Step.EVENT_STREAM,
}


def refusal(code: int, supported: object = None) -> RemoteError:
    data = None if supported is None else {"supported": supported, "requested": "x"}
    return RemoteError("no", rpc_code=code, data=data)


@pytest.mark.parametrize(("step", "reply"), list(itertools.product(Step, Reply)), ids=str)
def test_every_pair_has_a_next_step_and_no_step_is_asked_twice(step: Step, reply: Reply) -> None:
    assert following(step, reply) is TABLE.get((step, reply), Step.FAIL)
    assert following(step, reply) is not step or step is Step.FAIL


def test_whatever_comes_the_guessing_ends_after_at_most_five_requests() -> None:
    for replies in itertools.product(Reply, repeat=5):
        step, asked = Step.DISCOVER, 0
        for reply in replies:
            if step not in OPEN:
                break
            asked += 1
            step = following(step, reply)
        assert step not in OPEN
        assert asked <= 5


def test_who_is_not_let_in_never_falls_back() -> None:
    assert {following(step, Reply.UNAUTHORIZED) for step in Step} == {Step.FAIL}


def test_a_new_line_is_opened_once_and_the_older_transport_is_the_last() -> None:
    for reply in set(Reply) - {Reply.RESULT}:
        assert following(Step.EVENT_STREAM, reply) is Step.FAIL
        assert following(Step.INITIALIZE_FIRST, reply) in {Step.FAIL, Step.EVENT_STREAM}


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
        (InvalidParamsError("no result of this kind"), Reply.OTHER),
        (UnauthorizedError("who are you?"), Reply.UNAUTHORIZED),
        (refusal(1401), Reply.UNAUTHORIZED),
        (VersionMismatchError("no", data={"supported": ["2025-11-25"]}), Reply.COMMON_HANDSHAKE),
    ],
    ids=lambda value: getattr(value, "name", None) or f"{value!r}",
)
def test_an_answer_to_the_probe_is_read_for_the_era_alone(error: MCPError, reply: Reply) -> None:
    assert classify(error, REVISIONS) is reply  # V8: no single code decides


@pytest.mark.parametrize(
    ("error", "status", "ended", "reply"),
    [
        (TransportError("no reply"), 400, False, Reply.NO_ENDPOINT),
        (TransportError("no reply"), 404, False, Reply.NO_ENDPOINT),
        (TransportError("no reply"), 405, False, Reply.NO_ENDPOINT),
        (refusal(-32600), 400, False, Reply.NO_ENDPOINT),
        (refusal(-32022, ["2026-07-28"]), 400, False, Reply.COMMON_STATELESS),
        (refusal(-32020), 400, False, Reply.STATELESS_ERROR),
        (TransportError("no reply"), 401, False, Reply.UNAUTHORIZED),
        (TransportError("no reply"), 403, False, Reply.UNAUTHORIZED),
        (refusal(-32001), 401, False, Reply.UNAUTHORIZED),
        (TransportError("no reply"), 500, False, Reply.OTHER),
        (refusal(-32601), 200, False, Reply.OTHER),
        (TransportError("the line ended"), None, True, Reply.LINE_ENDED),
        (refusal(-32601), None, True, Reply.LINE_ENDED),
    ],
    ids=lambda value: getattr(value, "name", None) or f"{value!r}",
)
def test_the_line_has_its_say(error: MCPError, status: int, ended: bool, reply: Reply) -> None:
    assert classify(error, REVISIONS, status=status, ended=ended) is reply


def test_the_first_step_is_to_ask_if_there_is_anything_to_ask_about() -> None:
    assert first_step(REVISIONS) is Step.DISCOVER
    assert first_step(STATELESS) is Step.DISCOVER
    assert first_step(HANDSHAKE) is Step.INITIALIZE_FIRST


def test_what_worked_before_is_the_first_step() -> None:
    eras, revision = EraCache(), HANDSHAKE[0]
    for step, begin in (
        (Step.DISCOVER, Step.DISCOVER),
        (Step.DISCOVER_AGAIN, Step.DISCOVER),
        (Step.INITIALIZE, Step.INITIALIZE_FIRST),
        (Step.INITIALIZE_FIRST, Step.INITIALIZE_FIRST),
        (Step.EVENT_STREAM, Step.EVENT_STREAM),
    ):
        eras.learn("a", step, revision)
        assert first_step(REVISIONS, eras.get("a", REVISIONS)) is begin
    assert eras.get("a", STATELESS) is None  # it was a revision that this client does not speak
    assert eras.get("b", REVISIONS) is None
    eras.forget("a")
    eras.forget("a")
    assert eras.get("a", REVISIONS) is None


def test_the_cache_is_bounded_and_forgets_what_was_not_used_for_longest() -> None:
    eras = EraCache(size=2)
    eras.learn("a", Step.DISCOVER, STATELESS[0])
    eras.learn("b", Step.DISCOVER, STATELESS[0])
    assert eras.get("a", REVISIONS)
    eras.learn("c", Step.DISCOVER, STATELESS[0])
    assert len(eras) == 2
    assert eras.get("b", REVISIONS) is None
    assert eras.get("a", REVISIONS)


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
