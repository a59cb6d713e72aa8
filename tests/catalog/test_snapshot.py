"""From one snapshot to the next: what is compiled, shared, quarantined and given a name."""

from __future__ import annotations

import gc
import weakref

import msgspec
import pytest

from mcp_trio.abc import RawEntry, Reading
from mcp_trio.catalog.snapshot import Fault, Snapshot


def never(_name: str) -> bool:
    return False


@pytest.fixture
def step(compiler, raw):
    """Advance a snapshot by views and removals."""

    def advance(before, *views, removed=(), complete=False, reserved=never):
        entries = tuple(v if isinstance(v, RawEntry) else raw(v) for v in views)
        reading = Reading(token="t", entries=entries, removed=tuple(removed), complete=complete)
        return before.advance(reading, compiler, reserved)

    return advance


def test_entries_are_sorted_by_name_and_change_with_the_revision(step, view):
    one = step(Snapshot(), view("b"), view("a"), view("c"), complete=True)
    assert list(one.snapshot.entries) == ["a", "b", "c"]
    assert one.difference.added == ("a", "b", "c")
    again = step(Snapshot(), view("c"), view("a"), view("b"), complete=True).snapshot
    assert again.revision == one.snapshot.revision
    assert again.listing_revision == one.snapshot.listing_revision


def test_only_what_changed_is_compiled_and_all_else_is_shared(step, view, compiler):
    before = step(Snapshot(), *(view(f"op{i}") for i in range(10_000)), complete=True).snapshot
    compiler.compiled.clear()
    changed = view("op77", output_mapping={"result": {"v": 2}})
    made = step(before, changed)
    assert compiler.compiled == ["op77"]
    assert made.difference.changed == ("op77",)
    shared = [n for n in before.entries if made.snapshot.entries[n] is before.entries[n]]
    assert len(shared) == 9_999


def test_a_complete_reading_compiles_only_what_changed_too(step, view, compiler):
    views = [view(f"op{i}") for i in range(100)]
    before = step(Snapshot(), *views, complete=True).snapshot
    compiler.compiled.clear()
    made = step(before, *views[1:], view("new"), complete=True)
    assert compiler.compiled == ["new"]
    assert (made.difference.added, made.difference.removed) == (("new",), ("op0",))


def test_a_change_of_execution_leaves_the_listing_alone(step, view):
    before = step(Snapshot(), view("a"), complete=True).snapshot
    made = step(before, view("a", execution_config={"concurrency": 3}))
    assert made.difference.changed == ("a",)
    assert made.snapshot.revision != before.revision
    assert made.snapshot.listing_revision == before.listing_revision


def test_a_change_of_the_description_changes_the_listing(step, view):
    before = step(Snapshot(), view("a"), complete=True).snapshot
    made = step(before, view("a", tool_description="Other."))
    assert made.snapshot.listing_revision != before.listing_revision
    # The same text in the other spelling, and a tag, are not seen by anybody.
    same = step(made.snapshot, view("a", tool_description={"text": "Other.", "tags": ["x"]}))
    assert same.difference.changed == ("a",)
    assert same.snapshot.listing_revision == made.snapshot.listing_revision


def test_going_back_gives_the_old_revision_back(step, view):
    first = step(Snapshot(), view("a"), view("b"), complete=True).snapshot
    second = step(first, view("a", name="z"), view("c"), removed=["b"]).snapshot
    third = step(second, view("a"), view("b"), removed=["c"]).snapshot
    assert third.revision == first.revision != second.revision
    assert list(third.entries) == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "fault", "reason"),
    [
        ({"execution_config": {"circuit": {}}}, Fault.COMPILE, "execution_config.circuit is not"),
        ({"status": "draft"}, Fault.VIEW, "unknown key 'status'"),
        ({"name": "not a name"}, Fault.VIEW, "name: must match"),
    ],
)
def test_one_bad_entry_keeps_its_last_good_version(step, view, changes, fault, reason):
    good = step(Snapshot(), *(view(f"op{i}") for i in range(50)), complete=True).snapshot
    made = step(good, view("op7", **changes), view("op8", tool_description="New."))
    assert made.snapshot.entries["op7"] is good.entries["op7"]
    assert made.difference.changed == ("op8",)
    [record] = made.snapshot.report
    assert (record.operation_id, record.fault) == ("op7", fault)
    assert reason in record.reason
    assert record.serving == good.members["op7"].operation.revision
    repaired = step(made.snapshot, view("op7", tool_description="Repaired."))
    assert repaired.snapshot.report == ()
    assert repaired.difference.changed == ("op7",)


def test_a_bad_entry_without_a_good_version_is_only_reported(step, view):
    made = step(Snapshot(), view("a", ui={}), view("b"), complete=True)
    assert list(made.snapshot.entries) == ["b"]
    [record] = made.snapshot.report
    assert (record.operation_id, record.name, record.serving) == ("a", "a", None)


def test_an_entry_the_registry_could_not_read_is_quarantined(step, view):
    good = step(Snapshot(), view("a"), complete=True).snapshot
    broken = RawEntry(operation_id="a", fingerprint=b"x", fault="target: is not JSON")
    made = step(good, broken)
    assert made.snapshot.entries["a"] is good.entries["a"]
    assert made.snapshot.quarantine["a"].reason == "target: is not JSON"
    back = step(made.snapshot, view("a"))
    assert back.snapshot.report == ()
    assert not back.difference


def test_what_breaks_the_compiler_costs_its_own_operation_alone(step, view, compiler, caplog):
    before = step(Snapshot(), view("a"), view("b"), complete=True).snapshot
    compiled = compiler.compile

    def broken(operation):
        if operation.operation_id == "a":
            raise RecursionError
        return compiled(operation)

    compiler.compile = broken
    after = step(before, view("a", tool_description="2"), view("b", tool_description="2")).snapshot
    assert after.members["b"].operation.tool_description == "2"
    assert after.members["a"] is before.members["a"]
    (record,) = after.report
    assert (record.operation_id, record.fault) == ("a", Fault.COMPILE)
    assert record.reason == "internal fault: RecursionError"
    assert record.serving == before.members["a"].operation.revision


def test_a_view_that_cannot_be_encoded_costs_its_own_operation_alone(step, view):
    bad = RawEntry(operation_id="a", fingerprint=b"1", view=view("a", tool_description="\ud800"))
    after = step(Snapshot(), bad, view("b"), complete=True).snapshot
    assert list(after.entries) == ["b"]
    assert after.quarantine["a"].reason == "internal fault: UnicodeEncodeError"


def test_a_reason_is_bounded_and_can_be_shown_whatever_it_repeats(step, view):
    name = "\ud800" * 5000
    bad = [
        RawEntry(operation_id="a", fingerprint=b"1", fault="in \udcff.json, " + "x" * 5000),
        RawEntry(operation_id="b", fingerprint=b"2", view=view("b", name=name)),
    ]
    after = step(Snapshot(), *bad, complete=True).snapshot
    assert len(msgspec.json.encode(after.report)) < 3000
    assert after.quarantine["a"].reason.startswith(r"in \udcff.json, x")


def test_withdrawing_a_bad_entry_takes_its_good_version_along(step, view):
    good = step(Snapshot(), view("a"), complete=True).snapshot
    bad = step(good, view("a", ui=1)).snapshot
    gone = step(bad, removed=["a"])
    assert gone.snapshot.entries == {}
    assert gone.snapshot.report == ()
    assert gone.difference.removed == ("a",)


def test_an_id_that_differs_from_the_registrys_is_refused(step, view, raw):
    entry = raw(view("a"))
    odd = RawEntry(operation_id="b", fingerprint=entry.fingerprint, view=entry.view)
    assert "operation_id" in step(Snapshot(), odd).snapshot.quarantine["b"].reason


def test_an_id_that_comes_twice_is_refused(step, view):
    made = step(Snapshot(), view("a"), view("a", name="b"), view("c"), complete=True)
    assert list(made.snapshot.entries) == ["c"]
    assert "more than once" in made.snapshot.quarantine["a"].reason


def test_the_previous_owner_of_a_name_stays_and_both_are_reported(step, view):
    before = step(Snapshot(), view("a", name="tool"), complete=True).snapshot
    made = step(before, view("b", name="tool"))
    assert made.snapshot.owners == {"tool": "a"}
    assert not made.difference
    (newcomer,) = [r for r in made.snapshot.report if r.operation_id == "b"]
    (owner,) = [r for r in made.snapshot.report if r.operation_id == "a"]
    assert newcomer.fault is owner.fault is Fault.DUPLICATE
    assert "also claimed by a" in newcomer.reason
    assert "b claims the name too" in owner.reason
    assert owner.serving is not None
    # It stays the owner when it changes, too.
    made = step(made.snapshot, view("a", name="tool", tool_description="New."))
    assert made.snapshot.owners == {"tool": "a"}


def test_the_waiting_one_comes_in_when_the_name_is_free(step, view, compiler):
    before = step(Snapshot(), view("a", name="tool"), complete=True).snapshot
    both = step(before, view("b", name="tool")).snapshot
    compiler.compiled.clear()
    made = step(both, removed=["a"])
    assert made.snapshot.owners == {"tool": "b"}
    assert made.snapshot.report == ()
    # It was compiled when it was read.
    assert compiler.compiled == []


def test_two_newcomers_with_one_name_both_stay_out(step, view):
    made = step(Snapshot(), view("a", name="t"), view("b", name="t"), view("c"), complete=True)
    assert list(made.snapshot.entries) == ["c"]
    assert sorted(made.snapshot.quarantine) == ["a", "b"]
    renamed = step(made.snapshot, view("b", name="u"))
    assert renamed.snapshot.owners == {"c": "c", "t": "a", "u": "b"}
    assert renamed.snapshot.report == ()


def test_a_renaming_that_collides_keeps_the_old_name(step, view):
    before = step(Snapshot(), view("a"), view("b"), complete=True).snapshot
    made = step(before, view("b", name="a", tool_description="Renamed."))
    assert made.snapshot.entries["b"] is before.entries["b"]
    assert made.snapshot.owners == {"a": "a", "b": "b"}


def test_two_operations_can_swap_names_in_one_step(step, view):
    before = step(Snapshot(), view("a"), view("b"), complete=True).snapshot
    made = step(before, view("a", name="b"), view("b", name="a"))
    assert made.snapshot.owners == {"a": "b", "b": "a"}
    assert made.snapshot.report == ()


def test_a_chain_of_renamings_falls_back_as_a_whole(step, view):
    before = step(Snapshot(), view("a"), view("b"), view("c"), complete=True).snapshot
    # a wants b's name, b wants c's, and c stays: nobody can move.
    made = step(before, view("a", name="b"), view("b", name="c"))
    assert made.snapshot.owners == {"a": "a", "b": "b", "c": "c"}
    assert sorted(made.snapshot.quarantine) == ["a", "b"]


@pytest.mark.parametrize("kind", ["one name", "a chain"])
def test_names_that_collide_cost_what_there_is_of_them(step, view, kind):
    number = 500
    before = step(
        Snapshot(), *(view(f"op{i}", name=f"n{i}") for i in range(number)), complete=True
    ).snapshot
    asked = []
    if kind == "one name":
        renamed = [view(f"op{i}", name="same") for i in range(number)]
    else:
        # Each takes the name of the next one, and the last one's wish is in use.
        renamed = [view(f"op{i}", name=f"n{i + 1}") for i in range(number)]
        renamed.append(view("new", name=f"n{number}"))
    after = step(before, *renamed, reserved=asked.append).snapshot
    assert after.owners == before.owners
    assert len(asked) <= 2 * number + 1
    assert all(record.fault is Fault.DUPLICATE for record in after.quarantine.values())
    assert len(after.quarantine) == len(renamed)
    assert max(len(record.reason) for record in after.report) < 100


def test_a_name_of_the_program_is_not_for_the_catalog(step, view):
    made = step(
        Snapshot(), view("a", name="add"), view("b"), complete=True, reserved={"add"}.__contains__
    )
    assert list(made.snapshot.entries) == ["b"]
    assert made.snapshot.quarantine["a"].fault is Fault.RESERVED
    later = step(made.snapshot)
    assert later.snapshot.owners == {"add": "a", "b": "b"}


def test_published_counts_what_is_not_served_too(step, view, raw):
    before = step(Snapshot(), view("a"), view("b", ui=1), complete=True).snapshot
    partial = Reading(
        token="t", entries=(raw(view("c")), raw(view("a"))), removed=("b", "zz"), complete=False
    )
    assert before.published_after(partial) == 2
    assert set(before.left_by(partial)) == {"a", "c"}
    complete = Reading(token="t", entries=(raw(view("c")),), complete=True)
    assert before.published_after(complete) == 1
    assert set(before.left_by(complete)) == {"c"}


def test_an_unchanged_bad_entry_is_not_tried_again(step, view, compiler):
    bad = view("a", execution_config={"circuit": {}})
    before = step(Snapshot(), bad, view("b"), complete=True).snapshot
    compiler.compiled.clear()
    made = step(before, bad, view("b"), complete=True)
    assert compiler.compiled == []
    assert made.snapshot.report == before.report


def test_an_old_snapshot_goes_without_the_garbage_collector(step, view):
    # The collector may be kept from large catalogs; then only counting references frees them.
    before = step(Snapshot(), view("a"), view("b"), complete=True).snapshot
    gone = weakref.ref(before.members["a"].operation)
    gc.disable()
    try:
        step(before, view("a", tool_description="New."))
        del before
        assert gone() is None
    finally:
        gc.enable()


def test_renames_withdrawals_and_new_ones_in_one_step_leave_the_names_sorted(step, view):
    ids = ["b", "d", "f", "h"]
    before = step(Snapshot(), *(view(i) for i in ids), complete=True).snapshot
    made = step(
        before,
        view("b", name="z"),
        view("d", name="f"),
        view("f", name="d"),
        view("new", name="h"),
        view("first", name="a"),
        removed=["h"],
    ).snapshot
    assert list(made.entries) == list(made.owners) == ["a", "d", "f", "h", "z"]
    assert [made.owners[name] for name in made.entries] == ["first", "f", "d", "new", "b"]
    for name, owner in made.owners.items():
        assert made.entries[name] is made.members[owner].entry
