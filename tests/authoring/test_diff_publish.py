"""Comparing and publishing: what differs is told, and written once, in one step or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sqlite3
import stat
import time

import pytest
import trio

from mcp_trio.authoring.checking import check
from mcp_trio.authoring.comparing import compare_views, views_by_id
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.publishing import publish
from mcp_trio.authoring.sources import read_source
from mcp_trio.catalog.operation import parse
from mcp_trio.catalog.registries.document import DocumentRegistry
from mcp_trio.catalog.registries.schema import create_registry
from mcp_trio.catalog.registries.schema import publish as publish_rows
from mcp_trio.catalog.registries.sqlite import SqliteRegistry
from tests.authoring.views import FORMAT, make_view, static_view, write


def compared(a, b):
    return compare_views({v["operation_id"]: v for v in a}, {v["operation_id"]: v for v in b})


def test_differences_are_told_by_id_and_key():
    old = [make_view("a"), make_view("b"), make_view("c"), make_view("d")]
    new = [
        make_view("b"),
        make_view("c", name="renamed"),
        make_view("d", execution_config={"concurrency": 3}, output_schema={"type": "object"}),
        make_view("e"),
    ]
    found = compared(old, new)
    assert found.added == (("e", "e"),)
    assert found.removed == (("a", "a"),)
    assert found.renamed == (("c", "c", "renamed"),)
    assert found.same == 1
    (change,) = found.changed
    assert change.keys == ("output_schema", "execution_config")
    assert change.places == (
        ("/output_schema", "changed"),
        ("/execution_config/concurrency", "added"),
    )
    assert found.as_text().splitlines() == [
        "+ e (e)",
        "- a (a)",
        "> c -> renamed (c)",
        "~ d (d): output_schema, execution_config",
        "    ~ /output_schema",
        "    + /execution_config/concurrency",
        "1 added, 1 removed, 1 renamed, 1 changed, 1 the same",
    ]
    assert json.loads(json.dumps(found.as_json()))["changed"][0]["operation_id"] == "d"


def test_what_only_a_careful_eye_sees_differs_too():
    one = make_view("a", execution_config={"idempotent": True, "cache": {"ttl_s": 1}})
    other = make_view("a", execution_config={"idempotent": 1, "cache": {"ttl_s": 1.0}})
    (change,) = compared([one], [other]).changed
    assert ("/execution_config/idempotent", "changed") in change.places


def test_the_same_is_no_difference_and_order_makes_none():
    views = [make_view("a"), make_view("b")]
    assert not compared(views, [dict(reversed(v.items())) for v in reversed(views)])


def test_a_registry_and_a_file_are_compared(tmp_path):
    path = write(tmp_path / "x.json", make_view("a"), make_view("b"))
    registry = tmp_path / "r.db"
    create_registry(registry)
    publish_rows(registry, make_view("a"))
    found = compare_views(
        views_by_id(read_source(str(registry))), views_by_id(read_source(str(path)))
    )
    assert (found.added, found.same) == ((("b", "b"),), 1)


def test_what_cannot_be_told_apart_cannot_be_compared(tmp_path):
    path = write(tmp_path / "x.json", make_view("a"), make_view("a"))
    with pytest.raises(AuthoringError, match="another operation has the operation_id"):
        views_by_id(read_source(str(path)))
    path = write(tmp_path / "y.json", {})
    with pytest.raises(AuthoringError, match="is no operation"):
        views_by_id(read_source(str(path)))


# -- publishing -------------------------------------------------------------------

REGISTRIES = ("r.sqlite", "r.json")


def operations(*views):
    return [parse(view) for view in views]


async def reading(path):
    registry = DocumentRegistry(path) if path.suffix == ".json" else SqliteRegistry(path)
    try:
        return await registry.read(None)
    finally:
        await registry.aclose()


def published(path):
    found = trio.run(reading, path)
    assert all(entry.fault is None for entry in found.entries)
    return {entry.operation_id: entry.view for entry in found.entries}


@pytest.fixture(params=REGISTRIES)
def registry(request, tmp_path):
    return tmp_path / request.param


def test_what_is_published_is_what_a_service_reads(registry):
    views = [make_view("a"), static_view("b", {"deep": [1, None, "ä"]}, tool_description='"x"')]
    outcome = publish(operations(*views), str(registry))
    assert outcome.created
    assert outcome.added == ("a", "b")
    assert published(registry) == {view["operation_id"]: view for view in views}


def test_publishing_again_changes_nothing(registry):
    views = operations(make_view("a"), make_view("b"))
    publish(views, str(registry))
    before = registry.read_bytes()
    if registry.suffix != ".json":
        token = trio.run(reading, registry).token
    again = publish(views, str(registry))
    assert (again.added, again.changed, again.same) == ((), (), 2)
    if registry.suffix != ".json":
        assert trio.run(reading, registry).token == token
    assert registry.read_bytes() == before


def test_only_what_differs_is_written_and_the_rest_stays(registry):
    publish(operations(make_view("a"), make_view("b")), str(registry))
    outcome = publish(
        operations(make_view("b", tool_description="New."), make_view("c")), str(registry)
    )
    assert (outcome.added, outcome.changed, outcome.withdrawn) == (("c",), ("b",), ())
    assert published(registry).keys() == {"a", "b", "c"}
    assert published(registry)["b"]["tool_description"] == "New."


def test_pruning_withdraws_what_is_not_there_any_more(registry):
    publish(operations(make_view("a"), make_view("b")), str(registry))
    outcome = publish(operations(make_view("b")), str(registry), prune=True)
    assert outcome.withdrawn == ("a",)
    assert published(registry).keys() == {"b"}
    back = publish(operations(make_view("a")), str(registry))
    assert back.added == ("a",)
    assert published(registry).keys() == {"a", "b"}


def test_a_dry_run_tells_and_writes_nothing(registry):
    told = publish(operations(make_view("a")), str(registry), dry_run=True)
    assert told.added == ("a",)
    assert not registry.exists()
    publish(operations(make_view("a")), str(registry))
    before = registry.read_bytes()
    told = publish(operations(make_view("b")), str(registry), prune=True, dry_run=True)
    assert (told.added, told.withdrawn) == (("b",), ("a",))
    assert registry.read_bytes() == before
    assert published(registry).keys() == {"a"}


def test_a_name_that_another_operation_holds_is_refused_and_nothing_is_written(registry):
    publish(operations(make_view("a", name="same")), str(registry))
    new = operations(make_view("b"), make_view("c", name="same"))
    with pytest.raises(AuthoringError, match=r"c and a, which is published already, are both"):
        publish(new, str(registry))
    assert published(registry).keys() == {"a"}
    publish(new, str(registry), prune=True)
    assert published(registry).keys() == {"b", "c"}


def test_two_may_swap_their_names(registry):
    publish(operations(make_view("a", name="x"), make_view("b", name="y")), str(registry))
    publish(operations(make_view("a", name="y"), make_view("b", name="x")), str(registry))
    assert published(registry)["a"]["name"] == "y"


def test_what_is_for_editors_stays_in_the_registry(tmp_path):
    path = tmp_path / "r.db"
    publish(operations(make_view("a")), str(path))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE operations SET sample_payload = 'sample'")
    publish(operations(make_view("a", tool_description="New.")), str(path))
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT sample_payload FROM operations").fetchall() == [("sample",)]


def test_a_draft_of_the_registry_becomes_the_published_version(tmp_path):
    from mcp_trio.catalog.registries.schema import seed

    path = tmp_path / "r.db"
    create_registry(path)
    seed(path, [make_view("a")], status="draft")
    assert publish(operations(make_view("a")), str(path)).added == ("a",)
    assert published(path).keys() == {"a"}


def test_another_publisher_at_work_is_waited_for_or_told(tmp_path, registry, monkeypatch):
    publish(operations(make_view("a")), str(registry))
    if registry.suffix == ".json":
        folder = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            with pytest.raises(AuthoringError, match="another publisher is at work"):
                publish(operations(make_view("b")), str(registry))
        finally:
            os.close(folder)
    else:
        from mcp_trio.authoring import publishing

        opened = publishing.open_for_writing
        monkeypatch.setattr(
            publishing, "open_for_writing", lambda path: opened(path, busy_timeout=0.01)
        )
        # Of the same library: locks of a file count between processes, or within one library.
        other = opened(registry)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(AuthoringError, match="another publisher is at work"):
                publish(operations(make_view("b")), str(registry))
        finally:
            other.close()
    assert published(registry).keys() == {"a"}


def test_a_document_keeps_its_mode_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "r.json"
    publish(operations(make_view("a")), str(path))
    path.chmod(0o640)
    publish(operations(make_view("b")), str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["r.json"]


def test_a_link_to_a_document_stays_one(tmp_path):
    path, link = tmp_path / "r.json", tmp_path / "here" / "link.json"
    publish(operations(make_view("a")), str(path))
    link.parent.mkdir()
    link.symlink_to(path)
    publish(operations(make_view("b")), str(link))
    assert link.is_symlink()
    assert published(path).keys() == {"a", "b"}


def test_what_a_stopped_publisher_left_is_no_obstacle(tmp_path):
    path = tmp_path / "r.json"
    # Numbers of processes come again, in a container each time.
    (tmp_path / f".r.json.{os.getpid()}.tmp").write_text("{")
    assert publish(operations(make_view("a")), str(path)).added == ("a",)
    assert [each.name for each in tmp_path.iterdir()] == ["r.json"]


def test_whoever_makes_the_registry_first_the_others_publish_in_it(tmp_path, monkeypatch):
    from mcp_trio.authoring import publishing

    path = tmp_path / "r.db"

    def too_late(where):
        create_registry(where)
        publish_rows(where, make_view("b"))
        create_registry(where)

    monkeypatch.setattr(publishing, "create_registry", too_late)
    outcome = publish(operations(make_view("a")), str(path))
    assert (outcome.added, outcome.created) == (("a",), False)
    assert published(path).keys() == {"a", "b"}


@pytest.mark.parametrize("suffix", [".json", ".db"])
def test_publishers_that_are_killed_at_any_time_leave_a_whole_registry(tmp_path, suffix):
    path = tmp_path / f"r{suffix}"
    many = operations(*(make_view(f"op{i}", tool_description="x" * 2000) for i in range(200)))
    for delay in (0.0, 0.002, 0.004, 0.006, 0.01, 0.02, 0.03):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                publish(many, str(path))
            os._exit(0)
        # There is nothing to wait for: the end has to come anywhere.
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if path.exists():
            assert len(published(path)) in {0, 200}
    assert publish(operations(make_view("last")), str(path)).added == ("last",)
    assert "last" in published(path)


def test_a_failed_write_leaves_the_document_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    publish(operations(make_view("a")), str(path))
    before = path.read_bytes()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AuthoringError, match="No space left"):
        publish(operations(make_view("b")), str(path))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["r.json"]


def test_a_broken_operation_of_a_document_is_replaced_by_a_sound_one(tmp_path):
    path = write(tmp_path / "r.json", {"operation_id": "a", "draft": 1}, make_view("b"))
    assert publish(operations(make_view("a")), str(path)).changed == ("a",)
    assert published(path).keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("r.yaml", None, "a service reads no YAML"),
        ("r.json", '{"format": "other"}', "is not a registry, and was left as it is"),
        ("r.json", "{", "not JSON"),
        ("r.db", "no database at all, but long enough to be looked at", "is not a SQLite file"),
        ("folder", None, "is a folder"),
        ("pipe.json", None, "is not a file"),
        ("pipe.db", None, "is not a file"),
        ("no/such/folder/r.json", None, "No such file"),
        ("no/such/folder/r.db", None, "No such file"),
    ],
)
def test_what_is_no_registry_is_not_written_over(tmp_path, name, content, reason):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    if name.startswith("pipe"):
        os.mkfifo(path)
    if content is not None:
        path.write_text(content)
    with pytest.raises(AuthoringError, match=reason):
        publish(operations(make_view("a")), str(path))
    if content is not None:
        assert path.read_text() == content
    assert not name.startswith("pipe") or path.is_fifo()


def test_a_pipe_is_not_read_from(tmp_path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    # Both ends are open and something is in it: nobody would wait, if somebody looked.
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(end, b"x" * 16)
        with pytest.raises(AuthoringError, match="is not a file"):
            read_source(str(pipe))
        assert os.read(end, 100) == b"x" * 16
    finally:
        os.close(end)


def test_a_sqlite_file_that_is_no_registry_is_left_alone(tmp_path):
    path = tmp_path / "r.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE other (a)")
    with pytest.raises(AuthoringError, match="is not laid out as a registry"):
        publish(operations(make_view("a")), str(path))


def test_yaml_and_json_publish_the_same(tmp_path):
    from mcp_trio.authoring.yaml_text import write_yaml

    view = make_view("a", tool_description="no\nyes: 12")
    (tmp_path / "a.yaml").write_text(write_yaml({"format": FORMAT, "operations": [view]}))
    checked = check(read_source(str(tmp_path / "a.yaml")))
    assert checked.operations == (parse(view),)
