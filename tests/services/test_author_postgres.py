"""Publishing in a real PostgreSQL: in one step, under a lock, and only what differs."""

from __future__ import annotations

import psycopg
import pytest
import trio

from mcp_trio.authoring import publishing_postgres
from mcp_trio.authoring.faults import AuthoringError
from mcp_trio.authoring.publishing import publish
from mcp_trio.authoring.sources import read_source
from mcp_trio.catalog.operation import parse
from mcp_trio.catalog.registries.postgres import PostgresRegistry
from mcp_trio.catalog.registries.postgres_schema import create_registry
from tests.authoring.views import make_view


@pytest.fixture
def registry(database):
    create_registry(database.admin)
    database.grant()
    return database.admin


def operations(*views):
    return [parse(view) for view in views]


def published(address):
    return {entry.operation_id: entry.view for entry in read_source(address).entries}


def token(address):
    async def look():
        registry = PostgresRegistry(address)
        try:
            return await registry.change_token()
        finally:
            await registry.aclose()

    return trio.run(look)


def test_what_is_published_is_what_a_service_reads(registry):
    views = [make_view("a"), make_view("b", tool_description="ä", output_schema={"type": "object"})]
    outcome = publish(operations(*views), registry)
    assert outcome.added == ("a", "b")
    assert published(registry) == {view["operation_id"]: view for view in views}


def test_publishing_again_changes_nothing(registry):
    publish(operations(make_view("a"), make_view("b")), registry)
    before = token(registry)
    again = publish(operations(make_view("a"), make_view("b")), registry, prune=True)
    assert (again.added, again.changed, again.withdrawn, again.same) == ((), (), (), 2)
    assert token(registry) == before


def test_changes_are_one_step_and_a_dry_run_is_none(registry):
    publish(operations(make_view("a"), make_view("b")), registry)
    before = token(registry)
    new = operations(make_view("b", tool_description="New."), make_view("c"))
    told = publish(new, registry, prune=True, dry_run=True)
    assert token(registry) == before
    done = publish(new, registry, prune=True)
    assert done == told
    assert (done.added, done.changed, done.withdrawn) == (("c",), ("b",), ("a",))
    assert published(registry).keys() == {"b", "c"}


def test_a_name_that_is_taken_changes_nothing(registry):
    publish(operations(make_view("a", name="same")), registry)
    with pytest.raises(AuthoringError, match="which is published already"):
        publish(operations(make_view("b"), make_view("c", name="same")), registry)
    assert published(registry).keys() == {"a"}


def test_another_publisher_at_work_is_told(registry, monkeypatch):
    monkeypatch.setattr(publishing_postgres, "LOCK_TIMEOUT", 0.05)
    with psycopg.connect(registry) as other:
        other.execute("LOCK TABLE operations IN SHARE ROW EXCLUSIVE MODE")
        with pytest.raises(AuthoringError, match="another publisher is at work"):
            publish(operations(make_view("a")), registry)
        assert published(registry) == {}


def test_what_is_no_registry_or_not_ours_to_write_is_told(database, registry):
    with pytest.raises(AuthoringError, match=r"permission denied"):
        publish(operations(make_view("a")), database.url)
    with psycopg.connect(registry) as connection:
        connection.execute("DROP TABLE operations")
    with pytest.raises(AuthoringError, match="is not laid out as a registry"):
        publish(operations(make_view("a")), registry)
    with pytest.raises(AuthoringError, match="a password stands in"):
        publish(operations(make_view("a")), "postgresql://me:s3cret@127.0.0.1/x")
