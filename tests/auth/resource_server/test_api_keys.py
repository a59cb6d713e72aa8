"""API keys: made once, stored as digests, read again when their file changes."""

import contextlib
import datetime as dt
import hashlib
import hmac
import os

import pytest

from mcp_trio.auth.resource_server import APIKeys, api_keys
from mcp_trio.auth.resource_server.api_keys import MAX_FILE, PREFIX, new_key, read_keys
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from tests.auth.resource_server.authority import credentials, head

TODAY = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keys.toml"


def write(file, *lines):
    other = file.with_suffix(".new")
    other.write_text("\n".join(lines))
    other.chmod(0o600)
    other.rename(file)


def keys(file, now=TODAY):
    return APIKeys(path=file, clock=lambda: now)


async def test_a_key_says_whose_it_is(file):
    key, line = new_key("laptop", "ann", ["b", "a"])
    assert key.reveal().startswith(f"{PREFIX}laptop.")
    assert len(key.reveal()) - len(f"{PREFIX}laptop.") == 43  # 256 bits
    assert key.reveal() not in line
    write(file, "# mine", line)
    asker = keys(file)
    for shown in (
        credentials(key.reveal()),
        credentials(None, head=head(("x-api-key", f" {key.reveal()} "))),
    ):
        principal = await asker.authenticate(shown)
        assert (principal.subject, principal.issuer) == ("ann", "api-keys")
        assert principal.scopes == {"a", "b"}
        assert principal.token is None
    assert key.reveal() not in repr(asker) + repr(principal)


def test_a_line_is_as_documented(file):
    key, line = new_key("k-1", 'Ann "A" é', ["a"], dt.date(2027, 1, 31))
    (entry,) = read_keys(line).values()
    assert entry.digest == hashlib.sha256(key.reveal().encode()).digest()
    assert entry.subject == 'Ann "A" é'
    assert entry.expires == dt.datetime(2027, 1, 31, tzinfo=dt.UTC)
    assert line.count("\n") == 0
    assert entry.digest.hex() not in repr(entry)


@pytest.mark.parametrize("spoil", ["other", "secret", "id", "short", "case", "extra"])
async def test_a_wrong_key_is_refused_and_the_answer_does_not_say_why(file, spoil):
    key, line = new_key("laptop", "ann")
    write(file, line)
    good = key.reveal()
    bad = {
        "other": new_key("laptop", "ann")[0].reveal(),
        "secret": good[:-1] + ("A" if good[-1] != "A" else "B"),
        "id": good.replace("laptop", "desktop"),
        "short": good[:-5],
        "case": good.swapcase().replace("MCPK_", PREFIX),
        "extra": good + "A",
    }[spoil]
    with pytest.raises(UnauthorizedError) as caught:
        await keys(file).authenticate(credentials(bad))
    assert caught.value.message == "the key is not known"


@pytest.mark.parametrize("shown", ["", "mcpk_", "mcpk_x", "mcpk_x.", "\xff", "a" * 10_000])
async def test_rubbish_in_the_field_for_keys_is_refused(file, shown):
    write(file)
    with pytest.raises(UnauthorizedError, match="not known"):
        await keys(file).authenticate(credentials(None, head=head(("x-api-key", shown))))


async def test_digests_are_compared_in_constant_time_also_for_nobody(file, monkeypatch):
    key, line = new_key("laptop", "ann")
    write(file, line)
    compared = []

    target = "mcp_trio.auth.resource_server.api_keys.hmac.compare_digest"
    original = hmac.compare_digest
    monkeypatch.setattr(
        target, lambda one, other: compared.append((len(one), len(other))) or original(one, other)
    )
    for shown in (key.reveal(), key.reveal()[:-1] + "_", f"{PREFIX}nobody.{'a' * 43}"):
        with contextlib.suppress(UnauthorizedError):
            await keys(file).authenticate(credentials(shown))
    assert compared == [(32, 32)] * 3


async def test_what_is_no_key_is_left_to_others(file):
    write(file)
    for shown in (credentials(None), credentials("opaque"), credentials("a.b.c")):
        assert await keys(file).authenticate(shown) is None


async def test_two_proofs_at_once_are_refused(file):
    key, line = new_key("laptop", "ann")
    write(file, line)
    text = key.reveal()
    for shown in (
        credentials(text, head=head(("x-api-key", text))),
        credentials(None, head=head(("x-api-key", text), ("x-api-key", text))),
    ):
        with pytest.raises(UnauthorizedError, match="more than one"):
            await keys(file).authenticate(shown)


async def test_a_key_ends_on_its_day(file):
    key, line = new_key("laptop", "ann", (), dt.date(2026, 12, 2))
    write(file, line)
    assert await keys(file).authenticate(credentials(key.reveal()))
    for later in (dt.timedelta(hours=12), dt.timedelta(days=400)):
        with pytest.raises(UnauthorizedError, match="expired"):
            await keys(file, TODAY + later).authenticate(credentials(key.reveal()))


# -- the file --------------------------------------------------------------------------


async def test_a_change_of_the_file_counts_at_once(file, caplog):
    first, line = new_key("one", "ann")
    write(file, line)
    asker = keys(file)
    assert await asker.authenticate(credentials(first.reveal()))
    second, other = new_key("two", "bob")
    write(file, other)
    assert (await asker.authenticate(credentials(second.reveal()))).subject == "bob"
    with pytest.raises(UnauthorizedError):
        await asker.authenticate(credentials(first.reveal()))
    assert caplog.text == ""


async def test_a_change_that_cannot_be_read_changes_nothing_and_each_is_told_once(file, caplog):
    key, line = new_key("one", "ann")
    write(file, line)
    asker = keys(file)
    for broken in ("one = {", "one = 5"):
        write(file, broken)
        for _ in range(3):
            assert await asker.authenticate(credentials(key.reveal()))
    assert caplog.text.count("the last good keys stay") == 2
    write(file, line)
    file.chmod(0o666)
    for _ in range(2):
        assert await asker.authenticate(credentials(key.reveal()))
    assert caplog.text.count("others may write to it") == 1
    file.chmod(0o600)
    assert await asker.authenticate(credentials(key.reveal()))


async def test_a_broken_file_is_read_once_and_not_for_each_request(file, monkeypatch):
    key, line = new_key("one", "ann")
    write(file, line)
    asker, read = keys(file), []
    monkeypatch.setattr(api_keys, "read_keys", lambda text: read.append(text) or read_keys(text))
    write(file, "one = {")
    for _ in range(3):
        assert await asker.authenticate(credentials(key.reveal()))
    assert read == ["one = {"]
    write(file)
    with pytest.raises(UnauthorizedError):
        await asker.authenticate(credentials(key.reveal()))


async def test_a_file_that_cannot_be_read_just_now_is_tried_again(file, monkeypatch, caplog):
    key, line = new_key("one", "ann")
    write(file, line)
    asker, original = keys(file), api_keys._read
    write(file)  # the key is taken away

    def busy(path):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(api_keys, "_read", busy)
    assert await asker.authenticate(credentials(key.reveal()))
    assert "Too many open files; the last good keys stay" in caplog.text
    monkeypatch.setattr(api_keys, "_read", original)
    with pytest.raises(UnauthorizedError):
        await asker.authenticate(credentials(key.reveal()))


async def test_when_the_file_is_gone_so_are_the_keys(file, caplog):
    key, line = new_key("one", "ann")
    write(file, line)
    asker = keys(file)
    write(file, "one = {")
    assert await asker.authenticate(credentials(key.reveal()))
    file.unlink()  # another trouble than before, which is told, too
    for _ in range(2):
        with pytest.raises(UnauthorizedError):
            await asker.authenticate(credentials(key.reveal()))
    assert caplog.text.count("it is gone") == 1
    write(file, line)
    assert await asker.authenticate(credentials(key.reveal()))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x", "not TOML"),
        ("one = 5", "no entry"),
        ("'a b' = {}", "no entry"),
        ("one = {}", "digest must be"),
        ("one = { digest = 'sha256:00', subject = 'a' }", "digest must be"),
        (f"one = {{ digest = 'sha256:{'0' * 64}' }}", "subject must be"),
        (f"one = {{ digest = 'sha256:{'0' * 64}', subject = '' }}", "subject must be"),
        (f"one = {{ digest = 'sha256:{'0' * 64}', subject = 'a', x = 1 }}", "unknown key 'x'"),
        (f"one = {{ digest = 'sha256:{'0' * 64}', subject = 'a', scopes = 'a' }}", "list of"),
        (f"one = {{ digest = 'sha256:{'0' * 64}', subject = 'a', scopes = [1] }}", "list of"),
        (f"one = {{ digest = 'sha256:{'0' * 64}', subject = 'a', scopes = ['a b'] }}", "scope"),
        (f"one = {{ digest = 'sha256:{'0' * 64}', subject = 'a', expires = 5 }}", "a date"),
    ],
)
def test_faults_of_the_file_are_told_when_it_is_opened(file, text, match):
    write(file, text)
    with pytest.raises(ConfigurationError, match=match) as caught:
        keys(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_missing_or_that_others_may_write_is_refused(file):
    with pytest.raises(ConfigurationError, match="cannot read"):
        keys(file)
    write(file)
    for mode in (0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(ConfigurationError, match="others may write"):
            keys(file)
    file.chmod(0o644)
    keys(file)
    os.truncate(file, MAX_FILE + 1)
    with pytest.raises(ConfigurationError, match="larger than"):
        keys(file)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        keys(file)


@pytest.mark.parametrize(
    ("id_", "subject", "scopes"),
    [("", "a", ()), ("a b", "a", ()), ("a", "", ()), ("a", "a\nb", ()), ("a", "a", ["x y"])],
)
def test_a_key_that_cannot_be_is_not_made(id_, subject, scopes):
    with pytest.raises(ConfigurationError):
        new_key(id_, subject, scopes)
