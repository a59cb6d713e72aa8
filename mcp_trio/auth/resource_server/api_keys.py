"""API keys: long random secrets for machines, of which a file holds digests.

A key is `mcpk_<id>.<secret>` with a secret of 256 random bits, which we make ourselves. Its digest
is one SHA-256: a slow hash such as scrypt is for secrets that can be guessed, and would let
anybody spend our time by sending rubbish. The file is TOML, one line for each key:

    laptop = { digest = "sha256:...", subject = "ann", scopes = ["crm.read"], expires = 2027-01-31 }

It is read again when it changes, so taking a line out takes the key away.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import logging
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

import attrs

from mcp_trio.abc import Credentials
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.secrets import Secret
from mcp_trio.session.middleware import check_scopes

logger = logging.getLogger("mcp_trio.auth")

PREFIX = "mcpk_"
"""What every key begins with, so that people and scanners know one."""
HEADER = "x-api-key"
"""A header field for keys, beside `Authorization: Bearer`."""
ISSUER = "api-keys"
"""The issuer of these subjects: they are nobody's of an authorization server."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHOWN = re.compile(rf"{PREFIX}({_ID.pattern})\.([A-Za-z0-9_-]{{16,128}})")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_KEYS = frozenset({"digest", "subject", "scopes", "expires"})
MAX_FILE = 4 * 1024 * 1024
"""Bytes of the file."""
_OTHERS = 0o022
"""Permission bits by which others could write keys."""


@attrs.frozen(kw_only=True)
class KeyEntry:
    """What the file says about one key."""

    digest: bytes = attrs.field(repr=False)
    subject: str
    scopes: frozenset[str] = frozenset()
    expires: dt.datetime | None = None
    """From then on the key is none any more."""


def new_key(
    id_: str, subject: str, scopes: Iterable[str] = (), expires: dt.date | None = None
) -> tuple[Secret, str]:
    """Make a key.

    Args:
        id_: names it in the file, and is a part of it: 1 to 64 letters, digits, `-` and `_`.
        subject: whose it is.
        scopes: what it is good for.
        expires: the first day, in UTC, on which it is good no more; None for never.

    Returns:
        The key, which is shown to nobody twice, and the line for the file.

    Raises:
        ConfigurationError: the id, the subject or a scope cannot be one.
    """
    if not _ID.fullmatch(id_):
        raise ConfigurationError(f"an id has 1 to 64 letters, digits, - and _, not {id_[:80]!r}")
    if not subject or not subject.isprintable():
        raise ConfigurationError("the subject is a line of text")
    named = sorted(check_scopes(scopes, "the key"))
    key = f"{PREFIX}{id_}.{secrets.token_urlsafe(32)}"
    fields = [
        f'digest = "sha256:{hashlib.sha256(key.encode()).hexdigest()}"',
        f"subject = {json.dumps(subject)}",  # a text of JSON is one of TOML
        f"scopes = {json.dumps(named)}",
    ]
    if expires is not None:
        fields.append(f"expires = {expires.isoformat()}")
    return Secret(key), f"{id_} = {{ {', '.join(fields)} }}"


def read_keys(text: str) -> dict[str, KeyEntry]:
    """Read the file.

    Raises:
        ConfigurationError: naming the first entry that cannot be.
    """
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"it is not TOML: {error}") from error
    return {id_: _entry(id_, value) for id_, value in values.items()}


def _entry(id_: str, value: object) -> KeyEntry:
    if not _ID.fullmatch(id_) or not isinstance(value, dict):
        raise ConfigurationError(f"{id_[:64]!r} is no entry for a key")
    fields = cast("dict[str, object]", value)
    unknown = sorted(fields.keys() - _KEYS)
    if unknown:
        raise ConfigurationError(f"{id_}: unknown key {unknown[0][:64]!r}")
    digest, subject = fields.get("digest"), fields.get("subject")
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None:
        raise ConfigurationError(f"{id_}: digest must be sha256: and 64 hexadecimal digits")
    if not isinstance(subject, str) or not subject:
        raise ConfigurationError(f"{id_}: subject must be a text")
    return KeyEntry(
        digest=bytes.fromhex(found[1]),
        subject=subject,
        scopes=_scopes(id_, fields.get("scopes", [])),
        expires=_moment(id_, fields.get("expires")),
    )


def _scopes(id_: str, value: object) -> frozenset[str]:
    listed = cast("list[object]", value) if isinstance(value, list) else None
    if listed is None or not all(isinstance(item, str) for item in listed):
        raise ConfigurationError(f"{id_}: scopes must be a list of texts")
    return check_scopes(cast("list[str]", listed), id_)


def _moment(id_: str, value: object) -> dt.datetime | None:
    match value:
        case None:
            return None
        case dt.datetime(tzinfo=None):
            return value.replace(tzinfo=dt.UTC)
        case dt.datetime():
            return value
        case dt.date():
            return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
        case _:
            raise ConfigurationError(f"{id_}: expires must be a date or a time")


class KeyFile:
    """The entries of a file, as they are now.

    One that cannot be read or is broken changes nothing: the last good entries stay. One that is
    gone has none. Each fault is told once, and so is the next one.
    """

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            ConfigurationError: it is missing, broken, or others may write to it.
        """
        self._path = path
        self._told = ""
        try:
            self._stamp = _stamp(path)
            self._entries = _read(path)
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from error

    def entries(self) -> Mapping[str, KeyEntry]:
        """By id."""
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                self._told = ""
            else:
                self._renew()
                self._stamp = stamp
        except FileNotFoundError:
            self._entries, self._stamp = {}, (0, 0, 0, 0)
            self._tell("it is gone, and so are the keys")
        except OSError as error:
            self._tell(f"{error}; the last good keys stay")
        return self._entries

    def _renew(self) -> None:
        """Take what the file says now. One that is broken is not read again before it changes."""
        try:
            self._entries = _read(self._path)
            self._told = ""
        except ConfigurationError as error:
            self._tell(f"{error}; the last good keys stay")

    def _tell(self, what: str) -> None:
        if self._told != what:
            logger.warning("%s: %s", self._path, what)
            self._told = what


def _stamp(path: Path) -> tuple[int, int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_ctime_ns


def _read(path: Path) -> dict[str, KeyEntry]:
    found = path.stat()
    if found.st_mode & _OTHERS:
        raise ConfigurationError("others may write to it")
    if found.st_size > MAX_FILE:
        raise ConfigurationError(f"it is larger than {MAX_FILE} bytes")
    try:
        return read_keys(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigurationError("it is not UTF-8") from error


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@attrs.frozen(kw_only=True, eq=False)
class APIKeys:
    """Takes API keys, in `X-API-Key` or as a Bearer token. An `Authenticator`."""

    path: Path
    """The file with their digests; see `mcp_trio.auth.resource_server.api_keys`."""
    clock: Callable[[], dt.datetime] = attrs.field(default=_now, repr=False)
    """The time, with its zone."""
    _file: KeyFile = attrs.field(
        default=attrs.Factory(lambda self: KeyFile(self.path), takes_self=True),
        init=False,
        repr=False,
    )

    @property
    def issuers(self) -> tuple[str, ...]:
        """None: nobody gives them out to clients."""
        return ()

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        """Look a key up.

        Who guesses learns neither from the answer nor from its time which part was wrong.
        """
        fields = credentials.head.values(HEADER)
        token = credentials.token
        shown = [*fields] if token is None else [*fields, token.reveal()]
        if token is not None and not fields and not token.reveal().startswith(PREFIX):
            return None
        if not shown:
            return None
        if len(shown) > 1:
            raise UnauthorizedError("more than one key or token was sent")
        return self._principal(shown[0].strip())

    def _principal(self, key: str) -> Principal:
        found = _SHOWN.fullmatch(key)
        entry = self._file.entries().get(found[1]) if found else None
        digest = hashlib.sha256(key.encode()).digest()
        same = hmac.compare_digest(digest, bytes(32) if entry is None else entry.digest)
        if entry is None or not same:
            raise UnauthorizedError("the key is not known")
        if entry.expires is not None and self.clock() >= entry.expires:
            raise UnauthorizedError("the key has expired")
        return Principal(
            subject=entry.subject,
            issuer=ISSUER,
            scopes=entry.scopes,
            expires=None if entry.expires is None else entry.expires.timestamp(),
        )
