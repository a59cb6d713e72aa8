"""The books of one conversation: ids of both directions, late answers, bounded memory."""

from __future__ import annotations

import pytest

from mcp_trio.engine.peer import REMEMBERED, Peer
from mcp_trio.errors import ProtocolError


@pytest.fixture
def peer() -> Peer[str, str]:
    return Peer()


def test_ids_of_ours_never_repeat(peer: Peer[str, str]) -> None:
    first = peer.issue("a")
    peer.resolve(first)
    second = peer.issue("b")
    peer.abandon(second)
    assert len({first, second, peer.issue("c")}) == 3  # B2


def test_an_answer_takes_out_its_request_once(peer: Peer[str, str]) -> None:
    id_ = peer.issue("a")
    assert peer.resolve(id_) == "a"
    assert peer.resolve(id_) is None
    assert (peer.pending, peer.late, peer.unmatched) == ({}, 0, 1)


def test_answers_may_come_in_any_order(peer: Peer[str, str]) -> None:
    first, second = peer.issue("a"), peer.issue("b")
    assert peer.resolve(second) == "b"
    assert peer.resolve(first) == "a"


def test_an_answer_with_the_id_as_a_string_is_not_ours(peer: Peer[str, str]) -> None:
    id_ = peer.issue("a")
    assert peer.resolve(str(id_)) is None
    assert peer.resolve(None) is None
    assert peer.resolve(True) is None  # it equals 1 to Python, not to JSON
    assert peer.pending == {id_: "a"}
    assert peer.unmatched == 3


def test_a_late_answer_is_told_from_a_wrong_one(peer: Peer[str, str]) -> None:
    id_ = peer.issue("a")
    assert peer.abandon(id_)
    assert peer.resolve(id_) is None
    assert peer.resolve(99) is None
    assert (peer.late, peer.unmatched) == (1, 1)


def test_what_was_answered_cannot_be_abandoned(peer: Peer[str, str]) -> None:
    id_ = peer.issue("a")
    peer.resolve(id_)
    assert not peer.abandon(id_)
    assert not peer.abandon(12345)


def test_abandoned_ids_are_kept_in_bounds_oldest_forgotten_first(peer: Peer[str, str]) -> None:
    ids = [peer.issue("x") for _ in range(REMEMBERED + 10)]
    for id_ in ids:
        peer.abandon(id_)
    assert len(peer._abandoned) == REMEMBERED
    peer.resolve(ids[0])
    peer.resolve(ids[-1])
    assert (peer.late, peer.unmatched) == (1, 1)
    assert peer.pending == {}


def test_a_number_and_the_same_digits_as_text_are_two_requests(peer: Peer[str, str]) -> None:
    peer.begin(7, "number")
    peer.begin("7", "text")
    assert (peer.find(7), peer.find("7")) == ("number", "text")
    peer.finish(7)
    assert (peer.find(7), peer.find("7")) == (None, "text")
    peer.finish("7")
    assert peer.running == {}


def test_an_id_in_use_is_refused_and_the_first_request_stays(peer: Peer[str, str]) -> None:
    peer.begin(1, "first")
    with pytest.raises(ProtocolError):
        peer.begin(1, "second")
    assert peer.find(1) == "first"


def test_an_id_may_be_used_again_once_its_request_is_over(peer: Peer[str, str]) -> None:
    peer.begin(1, "first")
    peer.finish(1)
    peer.begin(1, "second")
    assert peer.find(1) == "second"


def test_both_directions_have_their_own_ids(peer: Peer[str, str]) -> None:
    id_ = peer.issue("ours")
    peer.begin(id_, "theirs")
    peer.finish(id_)
    assert peer.resolve(id_) == "ours"
