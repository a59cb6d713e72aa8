"""One PostgreSQL server for all tests that leave it running, and a database for each."""

from __future__ import annotations

import psycopg
import pytest

from tests.canary import no_secret_is_logged  # noqa: F401  # a fixture of all
from tests.services.servers import Database, Postgres, server


@pytest.fixture(scope="session")
def postgres():
    """A server for all tests that leave it running."""
    with server(Postgres.make) as made:
        with psycopg.connect(made.url("postgres", role="admin")) as connection:
            connection.execute("CREATE ROLE reader LOGIN")
            connection.execute("CREATE ROLE publisher LOGIN")
        yield made


@pytest.fixture
def database(postgres):
    return Database(postgres)
