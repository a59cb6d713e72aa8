"""The books of registries that keep none, against a model."""

from __future__ import annotations

import random

from mcp_trio.abc import RawEntry
from mcp_trio.catalog.registries import journal as module
from mcp_trio.catalog.registries.journal import Journal


def entry(operation_id, version=0):
    return RawEntry(operation_id=operation_id, fingerprint=bytes([version]), view={"v": version})


def follow(known, reading):
    left = {} if reading.complete else {i: e for i, e in known.items() if i not in reading.removed}
    return {**left, **{e.operation_id: e for e in reading.entries}}


def test_any_token_of_the_past_leads_to_now(monkeypatch):
    monkeypatch.setattr(module, "MAX_REMOVED", 7)
    chance = random.Random(1)
    journal, truth = Journal(), {}
    past = [(journal.token, {})]
    partial = 0
    for step in range(400):
        changes = {}
        for _ in range(chance.randrange(4)):
            name = f"op{chance.randrange(30)}"
            changes[name] = entry(name, chance.randrange(3)) if chance.random() < 0.6 else None
        if step % 50 == 49:
            truth = {i: e for i, e in changes.items() if e is not None}
            journal.replace(truth)
        else:
            truth = {i: e for i, e in {**truth, **changes}.items() if e is not None}
            journal.apply(changes)
        past.append((journal.token, dict(truth)))
        for token, known in chance.sample(past, min(5, len(past))):
            reading = journal.read(token)
            partial += not reading.complete
            assert follow(known, reading) == truth
            assert reading.token == journal.token
        assert len(journal._changed) - len(journal._entries) <= 7
    assert partial > 100


def test_a_reading_costs_what_changed():
    journal = Journal()
    journal.replace({f"op{n}": entry(f"op{n}") for n in range(1000)})
    base = journal.token
    journal.apply({"op5": entry("op5", 1), "op6": entry("op6")})
    reading = journal.read(base)
    assert [e.operation_id for e in reading.entries] == ["op5"]
    journal.apply({"op6": entry("op6"), "nobody": None})
    assert journal.token == reading.token
    journal.apply({"op6": None})
    assert journal.read(reading.token).removed == ("op6",)
    # Withdrawn, and published again as it was: whoever saw it go has to be told.
    gone = journal.token
    journal.apply({"op6": entry("op6")})
    assert [e.operation_id for e in journal.read(gone).entries] == ["op6"]


def test_two_journals_do_not_take_each_others_tokens():
    one, two = Journal(), Journal()
    one.apply({"a": entry("a")})
    two.apply({"b": entry("b")})
    assert one.read(two.token).complete
