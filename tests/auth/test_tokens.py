"""Where tokens are kept: both stores by one set of tests, and the files of one of them."""

import json
import os
import stat

import attrs
import pytest

from mcp_trio.auth import FileStore, Grant, MemoryStore, RegisteredClient
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret

CLIENT = RegisteredClient(
    client_id="c",
    client_secret=Secret("s3cret"),
    auth_method="client_secret_basic",
    secret_expires_at=5.0,
    redirect_uris=("http://127.0.0.1/callback",),
    issuer="https://as.example",
)
GRANT = Grant(
    issuer="https://as.example",
    resource="https://mcp.example/mcp",
    client_id="c",
    access_token=Secret("access-s3cret"),
    token_type="DPoP",
    refresh_token=Secret("refresh-s3cret"),
    expires_at=7.5,
    scopes=("a", "b"),
    dpop_key=Secret("pem-s3cret"),
)
BARE = Grant(issuer="i", resource="r", client_id="c", access_token=Secret("a"))


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "tokens")


@pytest.mark.parametrize("grant", [GRANT, BARE])
async def test_what_is_saved_is_loaded_until_it_is_forgotten(store, grant):
    assert await store.load_grant("https://a") is None
    await store.save_grant("https://a", grant)
    assert await store.load_grant("https://a") == grant
    assert await store.load_grant("https://b") is None
    await store.save_grant("https://a", None)
    await store.save_grant("https://a", None)
    assert await store.load_grant("https://a") is None


@pytest.mark.parametrize("client", [CLIENT, RegisteredClient(client_id="c")])
async def test_clients_are_kept_by_issuer(store, client):
    await store.save_client("https://as/", client)
    assert await store.load_client("https://as/") == client
    assert await store.load_client("https://as") is None
    await store.save_client("https://as/", None)
    assert await store.load_client("https://as/") is None


async def test_files_are_for_their_owner_only_and_nothing_else_is_left(tmp_path):
    store = FileStore(tmp_path / "deep" / "tokens")
    old = os.umask(0)
    try:
        for grant in (GRANT, BARE):
            await store.save_grant("https://mcp.example/../../etc", grant)
    finally:
        os.umask(old)
    (path,) = (tmp_path / "deep" / "tokens").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_file_that_others_may_read_is_refused(tmp_path):
    store = FileStore(tmp_path)
    await store.save_client("https://as", CLIENT)
    (path,) = tmp_path.iterdir()
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="0600"):
        await store.load_client("https://as")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"key": "https://a"}', '{"key": "https://b", "client_id": "c"}']
)
async def test_a_file_that_is_none_of_ours_counts_as_missing(tmp_path, text):
    store = FileStore(tmp_path)
    await store.save_grant("https://a", GRANT)
    await store.save_client("https://a", CLIENT)
    for path in tmp_path.iterdir():
        path.write_text(text)
    assert await store.load_grant("https://a") is None
    assert await store.load_client("https://a") is None


async def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    store = FileStore(tmp_path)
    await store.save_grant("https://a", GRANT)

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        await store.save_grant("https://a", BARE)
    assert await store.load_grant("https://a") == GRANT
    assert len(list(tmp_path.iterdir())) == 1


async def test_secrets_are_in_the_file_and_in_no_text(tmp_path):
    store = FileStore(tmp_path)
    await store.save_grant("https://a", GRANT)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["access_token"] == "access-s3cret"
    shown = f"{GRANT} {GRANT!r} {CLIENT!r} {store!r} {attrs.asdict(GRANT, recurse=False)}"
    assert "s3cret" not in shown
