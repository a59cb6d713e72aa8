"""The keys of a server that come from its settings: fetched, checked, rotated, never told."""

import base64

import pytest

from mcp_trio.config import ServerSection, parse_settings
from mcp_trio.eras.rounds import KeyRing, StateError
from mcp_trio.errors import ConfigurationError

ONE, TWO = bytes(range(32)), bytes(range(32, 64))


def options(folder, environment=None, **keys):
    return ServerSection(**keys).server_options(folder, environment or {})


def test_keys_come_from_the_environment_and_from_files_in_hex_or_base64(tmp_path):
    (tmp_path / "old.key").write_text(base64.b64encode(TWO).decode() + "\n")
    made = options(
        tmp_path,
        {"NEW_KEY": ONE.hex(), "CURSORS": base64.b64encode(TWO).decode()},
        state_keys=["env:NEW_KEY", "file:old.key"],
        cursor_key="env:CURSORS",
    )
    assert made.state_keys == (ONE, TWO)
    assert made.cursor_secret == TWO


def test_without_any_each_process_has_its_own(tmp_path):
    made = options(tmp_path)
    assert made.state_keys == ()
    assert made.cursor_secret is None


def test_a_key_is_rotated_by_putting_a_new_one_first(tmp_path):
    sealed = KeyRing((TWO,)).seal(b"x", b"bound")
    made = options(tmp_path, {"A": ONE.hex(), "B": TWO.hex()}, state_keys=["env:A", "env:B"])
    ring = KeyRing(made.state_keys)
    assert ring.open(sealed, b"bound") == b"x"
    with pytest.raises(StateError):
        KeyRing((TWO,)).open(ring.seal(b"x", b"bound"), b"bound")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("env:MISSING", "MISSING is not set"),
        ("file:none.key", "cannot read none.key"),
        ("env:SHORT", "SHORT must hold 32 bytes"),
        ("env:WRONG", "WRONG must hold 32 bytes"),
        ("c2VjcmV0", "env:NAME or file:PATH"),
        ("file:", "cannot read"),
        ("file:a\0b", "cannot read"),
        ("env:", "is not set"),
        ("env:a\0b", "is not set"),
        (":", "env:NAME or file:PATH"),
    ],
)
def test_what_is_no_key_is_refused_without_telling_it(tmp_path, key, text):
    environment = {"SHORT": ONE[:16].hex(), "WRONG": "not a key at all"}
    for setting in ({"state_keys": [key]}, {"cursor_key": key}):
        with pytest.raises(ConfigurationError, match=text) as caught:
            options(tmp_path, environment, **setting)
        assert ONE[:16].hex() not in str(caught.value)
        assert "c2VjcmV0" not in str(caught.value)


def test_they_are_settings_like_others():
    settings = parse_settings(
        {"server": {"state_keys": ["env:A"], "cursor_key": "env:B"}, "catalog": {"registry": "x"}}
    )
    assert settings.server.state_keys == ["env:A"]
