"""The handshake table (LC1, LC2): every pair of stage and event, legal and not."""

from __future__ import annotations

import itertools

import pytest

from mcp_trio.engine.lifecycle import TABLE, Event, Stage, advance
from mcp_trio.errors import NotInitializedError, ProtocolError

LEGAL = {
    (Stage.NEW, Event.INITIALIZE): Stage.OPENED,
    (Stage.NEW, Event.PING): Stage.NEW,
    (Stage.OPENED, Event.PING): Stage.OPENED,
    (Stage.OPENED, Event.OTHER): Stage.OPENED,
    (Stage.OPENED, Event.INITIALIZED): Stage.READY,
    (Stage.READY, Event.PING): Stage.READY,
    (Stage.READY, Event.OTHER): Stage.READY,
    (Stage.READY, Event.INITIALIZED): Stage.READY,
}
PAIRS = list(itertools.product(Stage, Event))


@pytest.mark.parametrize(("stage", "event"), PAIRS, ids=str)
def test_every_pair_of_stage_and_event_leads_where_it_should(stage: Stage, event: Event) -> None:
    if (stage, event) in LEGAL:
        assert advance(stage, event) is LEGAL[stage, event]
    else:
        with pytest.raises(ProtocolError):
            advance(stage, event)


def test_the_table_holds_nothing_else() -> None:
    assert TABLE == LEGAL


@pytest.mark.parametrize("event", [Event.OTHER, Event.INITIALIZED])
def test_coming_too_early_says_what_has_to_come_first(event: Event) -> None:
    with pytest.raises(NotInitializedError, match="initialize first"):
        advance(Stage.NEW, event)


@pytest.mark.parametrize("stage", [Stage.OPENED, Stage.READY])
def test_a_second_initialize_is_a_fault_of_its_own(stage: Stage) -> None:
    with pytest.raises(ProtocolError, match="already") as caught:
        advance(stage, Event.INITIALIZE)
    assert not isinstance(caught.value, NotInitializedError)
