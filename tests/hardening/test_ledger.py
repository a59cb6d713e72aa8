"""The comparison of the books: it finds the one call that does not agree."""

from collections import Counter

import attrs
import pytest

from tests.hardening.ledger import (
    ANSWERED,
    FAILED,
    LEFT,
    UNSENT,
    Books,
    Ledger,
    digest_of,
    judge_callers,
    judge_place,
    read_journal,
)

ENDS = {ANSWERED: "success", FAILED: "error", LEFT: "cancelled", UNSENT: None}


async def three_of_each():
    """A ledger, and books and begins that agree with it."""
    ledger, audit, access, begun = Ledger(), [], [], Counter()
    for number in range(12):
        end = list(ENDS)[number % 4]
        call = ledger.ask("one", "raw one", "half" if end == FAILED else "keep")
        call.close(end)
        if end == UNSENT:
            continue
        begun[call.mark] += 1
        audit.append({"arguments_hmac": digest_of(call), "outcome": ENDS[end], "tool": call.tool})
        access.append(
            {
                "call": "tools/call",
                "request_id": call.mark,
                "method": "POST",
                "status": None if end == LEFT else 200,
                "complete": end != LEFT,
                "agent": None,
            }
        )
    books = Books(
        place="one",
        audit=audit,
        ended=Counter(success=3, error=3, cancelled=3),
        tools=Counter((line["tool"], line["outcome"]) for line in audit),
        open={"in flight": 0},
        access=access,
    )
    return ledger, books, begun


async def test_books_that_agree_have_no_fault():
    ledger, books, begun = await three_of_each()
    assert judge_callers(ledger) == []
    assert judge_place(ledger, books, begun) == []


def without(lines, outcome):
    """The lines but for the first one of a call that ended so."""
    gone = next(line for line in lines if line["outcome"] == outcome)
    return [line for line in lines if line is not gone]


LOST = {
    "a call that is answered is not written": lambda b: attrs.evolve(
        b, audit=without(b.audit, "success")
    ),
    "a call is written twice": lambda b: attrs.evolve(b, audit=[*b.audit, b.audit[0]]),
    "one is lost and another one written twice": lambda b: attrs.evolve(
        b, audit=[b.audit[-3], *without(b.audit, "success")]
    ),
    "an answer is written as an error": lambda b: attrs.evolve(
        b, audit=[{**b.audit[0], "outcome": "error"}, *b.audit[1:]]
    ),
    "nobody has made it": lambda b: attrs.evolve(
        b, audit=[*b.audit, {**b.audit[0], "arguments_hmac": "0"}]
    ),
    "a request is counted that was no call": lambda b: attrs.evolve(
        b, ended=b.ended + Counter(success=1)
    ),
    "a request is not counted": lambda b: attrs.evolve(b, ended=b.ended - Counter(cancelled=1)),
    "a tool is counted twice": lambda b: attrs.evolve(
        b, tools=b.tools + Counter({("keep", "success"): 1})
    ),
    "something still runs": lambda b: attrs.evolve(b, open={"in flight": 1}),
    "an exchange is logged twice": lambda b: attrs.evolve(b, access=[*b.access, b.access[0]]),
    "an exchange is not logged": lambda b: attrs.evolve(b, access=b.access[1:]),
    "an answer is logged as broken off": lambda b: attrs.evolve(
        b, access=[{**b.access[0], "complete": False}, *b.access[1:]]
    ),
    "a WebSocket is logged that nobody has opened": lambda b: attrs.evolve(
        b, access=[*b.access, {**b.access[0], "call": None, "method": "WEBSOCKET"}]
    ),
}


@pytest.mark.parametrize("change", LOST.values(), ids=LOST)
async def test_one_entry_that_does_not_agree_is_found(change):
    ledger, books, begun = await three_of_each()
    assert judge_place(ledger, change(books), begun) != []


async def test_a_call_that_reached_the_upstream_twice_or_never_is_found():
    ledger, books, begun = await three_of_each()
    mark = next(call.mark for call in ledger.calls.values() if call.end == ANSWERED)
    for wrong in (0, 2):
        assert judge_place(ledger, books, Counter({**begun, mark: wrong})) != []


async def test_a_call_without_an_end_and_a_failure_without_a_cause_are_found():
    ledger, _, _ = await three_of_each()
    call = ledger.ask("one", "raw one", "keep")
    assert len(judge_callers(ledger)) == 1
    call.close(FAILED)
    assert len(judge_callers(ledger)) == 1
    ledger.outages.append((call.began, call.ended))
    assert judge_callers(ledger) == []
    with pytest.raises(AssertionError, match="ended twice"):
        call.close(ANSWERED)


def test_what_the_upstream_began_it_has_ended_unless_it_was_killed(tmp_path):
    journal = tmp_path / "journal"
    journal.write_text(
        "7 begun /keep a\n7 answered /keep a\n8 begun /slow b\n8 begun /slow c\n8 left /slow c\n"
    )
    assert read_journal(journal, {8}) == (Counter(a=1, b=1, c=1), [])
    _, faults = read_journal(journal, set())
    assert len(faults) == 1
