"""Where tokens are kept: both stores by one set of tests, and the files of one of them."""

import json
import math
import os
import stat

import attrs
import pytest
import trio

from mcp_trio.auth import FileStore, Grant, MemoryStore, RegisteredClient
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret
from tests.descriptors import open_files

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


async def test_a_directory_in_the_place_of_a_file_keeps_no_descriptor(tmp_path):
    store = FileStore(tmp_path)
    await store.save_client("https://as", CLIENT)
    (path,) = tmp_path.iterdir()
    path.unlink()
    path.mkdir()
    for _ in range(3):
        with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
            await store.load_client("https://as")
    assert open_files(path) == 0


async def test_a_file_that_others_may_read_is_refused(tmp_path):
    store = FileStore(tmp_path)
    await store.save_client("https://as", CLIENT)
    (path,) = tmp_path.iterdir()
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="0600"):
        await store.load_client("https://as")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "[" * 100_000,
        '{"key": "https://a"}',
        '{"key": "https://b", "client_id": "c"}',
    ],
)
async def test_a_file_that_is_none_of_ours_counts_as_missing(tmp_path, text):
    store = FileStore(tmp_path)
    await store.save_grant("https://a", GRANT)
    await store.save_client("https://a", CLIENT)
    for path in tmp_path.iterdir():
        path.write_text(text)
    assert await store.load_grant("https://a") is None
    assert await store.load_client("https://a") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("NaN", None), ("1" + "0" * 400, math.inf), ("true", None), ('"5"', None)],
)
async def test_a_time_that_is_none_is_not_known(tmp_path, text, expected):
    store = FileStore(tmp_path)
    await store.save_grant("https://a", GRANT)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace("7.5", text))
    assert (await store.load_grant("https://a")).expires_at == expected


async def test_a_token_that_no_header_takes_is_none(tmp_path):
    store = FileStore(tmp_path)
    await store.save_grant("https://a", attrs.evolve(GRANT, access_token=Secret("s3cret\r\nx: y")))
    assert await store.load_grant("https://a") is None


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
async def test_a_directory_that_others_may_write_to_is_refused(tmp_path, mode):
    store = FileStore(tmp_path)
    await store.save_grant("https://a", GRANT)
    tmp_path.chmod(mode)
    with pytest.raises(ConfigurationError, match="others may write"):
        await store.load_grant("https://a")
    with pytest.raises(ConfigurationError, match="others may write"):
        await store.save_grant("https://a", BARE)


def link(path):
    elsewhere = path.with_name("elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def circle(path):
    path.unlink()
    path.symlink_to(path)


def folder(path):
    path.unlink()
    path.mkdir()


def pipe(path):
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize("change", [link, circle, folder, pipe])
async def test_what_is_no_file_is_not_read_and_never_waited_for(tmp_path, change):
    store = FileStore(tmp_path)
    await store.save_grant("https://a", GRANT)
    (path,) = tmp_path.iterdir()
    change(path)
    with trio.fail_after(5), pytest.raises(ConfigurationError):
        await store.load_grant("https://a")


async def test_a_link_is_replaced_and_not_written_through(tmp_path):
    store = FileStore(tmp_path / "tokens")
    await store.save_grant("https://a", GRANT)
    (path,) = (tmp_path / "tokens").iterdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path.unlink()
    path.symlink_to(victim)
    await store.save_grant("https://a", GRANT)
    assert victim.read_text() == "mine"
    assert await store.load_grant("https://a") == GRANT


async def test_many_who_save_at_once_leave_one_whole_file(tmp_path):
    stores = [FileStore(tmp_path) for _ in range(8)]
    async with trio.open_nursery() as nursery:
        for store in stores:
            for grant in (GRANT, BARE):
                nursery.start_soon(store.save_grant, "https://a", grant)
    assert await stores[0].load_grant("https://a") in (GRANT, BARE)
    assert len(list(tmp_path.iterdir())) == 1


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
