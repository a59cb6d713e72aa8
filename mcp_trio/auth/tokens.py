"""What has to be remembered between requests and programs, and where it is kept.

Who we are is kept by issuer: what one authorization server gave us is never shown to another.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import attrs
import trio
import trio.lowlevel

from mcp_trio.errors import ConfigurationError
from mcp_trio.framing.headers import is_printable
from mcp_trio.secrets import Secret

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


@attrs.frozen(kw_only=True)
class RegisteredClient:
    """Who we are at an authorization server."""

    client_id: str
    client_secret: Secret | None = None
    auth_method: str | None = None
    """How to prove it at the token endpoint; None: what the server prefers."""
    secret_expires_at: float | None = None
    """Seconds since the epoch; None: never."""
    redirect_uris: tuple[str, ...] = ()
    """Where people may come back to; empty if that is not known here."""
    issuer: str | None = None
    """The only server that this may be shown to. For a client that was registered by hand and
    says None it is the first server met."""


@attrs.frozen(kw_only=True)
class Grant:
    """A token, and what is needed to get the next one."""

    issuer: str
    resource: str
    client_id: str
    access_token: Secret
    token_type: str = "Bearer"  # noqa: S105 - a scheme
    refresh_token: Secret | None = None
    expires_at: float | None = None
    """Seconds since the epoch; None where the server does not say."""
    scopes: tuple[str, ...] = ()
    """What was asked for, and what was granted."""
    dpop_key: Secret | None = None
    """The private key, as PEM, that the token is bound to."""


class TokenStore(Protocol):
    """Where clients and grants are kept: of one person or program, since nothing in it says whose.

    `save_grant` is called under a shield and should not wait for long. An `OSError` of a save is
    logged, any other failure surfaces. For clients registered by hand without an issuer, the one
    that was met first is kept as a client of the issuer `registered:` with the client id.
    """

    async def load_client(self, issuer: str) -> RegisteredClient | None:
        """Who we are at an issuer."""
        ...

    async def save_client(self, issuer: str, client: RegisteredClient | None) -> None:
        """Remember who we are at an issuer; None forgets."""
        ...

    async def load_grant(self, url: str) -> Grant | None:
        """The grant for a server."""
        ...

    async def save_grant(self, url: str, grant: Grant | None) -> None:
        """Remember the grant for a server; None forgets."""
        ...


class MemoryStore:
    """A store that ends with the program."""

    def __init__(self) -> None:
        self._clients: dict[str, RegisteredClient] = {}
        self._grants: dict[str, Grant] = {}

    async def load_client(self, issuer: str) -> RegisteredClient | None:
        """Who we are at an issuer."""
        await trio.lowlevel.checkpoint()
        return self._clients.get(issuer)

    async def save_client(self, issuer: str, client: RegisteredClient | None) -> None:
        """Remember who we are at an issuer; None forgets."""
        await trio.lowlevel.checkpoint()
        if client is None:
            self._clients.pop(issuer, None)
        else:
            self._clients[issuer] = client

    async def load_grant(self, url: str) -> Grant | None:
        """The grant for a server."""
        await trio.lowlevel.checkpoint()
        return self._grants.get(url)

    async def save_grant(self, url: str, grant: Grant | None) -> None:
        """Remember the grant for a server; None forgets."""
        await trio.lowlevel.checkpoint()
        if grant is None:
            self._grants.pop(url, None)
        else:
            self._grants[url] = grant


class FileStore:
    """A store of one small file for each issuer and each server, in a directory of its own.

    Files are readable by their owner only (0600) and appear whole or not at all, so programs
    may share the directory. A file that cannot be read as one of ours counts as missing; one that
    others may read, or could have put there, is refused, and no link is followed. Files are read
    and written in a worker thread.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Make one; nothing is created before something is saved.

        Args:
            directory: made with mode 0700 if it does not exist.
        """
        self._directory = Path(directory)

    def __repr__(self) -> str:
        return f"FileStore({str(self._directory)!r})"

    async def load_client(self, issuer: str) -> RegisteredClient | None:
        """Who we are at an issuer.

        Raises:
            ConfigurationError: others may read or write it, or it cannot be read.
        """
        found = await trio.to_thread.run_sync(self._load, "client", issuer)
        return None if found is None else read_client(found)

    async def save_client(self, issuer: str, client: RegisteredClient | None) -> None:
        """Remember who we are at an issuer; None forgets."""
        await self._save("client", issuer, None if client is None else plain(client))

    async def load_grant(self, url: str) -> Grant | None:
        """The grant for a server.

        Raises:
            ConfigurationError: others may read or write it, or it cannot be read.
        """
        found = await trio.to_thread.run_sync(self._load, "grant", url)
        return None if found is None else read_grant(found)

    async def save_grant(self, url: str, grant: Grant | None) -> None:
        """Remember the grant for a server; None forgets."""
        await self._save("grant", url, None if grant is None else plain(grant))

    def _path(self, kind: str, key: str) -> Path:
        # An issuer is somebody else's text, and no path.
        return self._directory / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

    def _load(self, kind: str, key: str) -> Record | None:
        path = self._path(kind, key)
        try:
            self._check_directory()
            with open(path, "rb", opener=_opened) as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
                    raise ConfigurationError(f"{path} is no file of ours")
                if about.st_mode & 0o077:
                    raise ConfigurationError(f"others may read {path}; it has to have mode 0600")
                found: object = json.loads(file.read())
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
        record = cast("Record", found) if isinstance(found, dict) else {}
        return record if record.pop("key", None) == key else None

    async def _save(self, kind: str, key: str, record: Record | None) -> None:
        await trio.to_thread.run_sync(self._write, self._path(kind, key), key, record)

    def _check_directory(self) -> None:
        """Whoever may write here could give us tokens and clients of their own.

        Raises:
            ConfigurationError: somebody else may.
            FileNotFoundError: there is none yet.
        """
        about = self._directory.stat()
        if about.st_mode & 0o022 or about.st_uid not in {os.geteuid(), 0}:
            raise ConfigurationError(f"others may write to {self._directory}; use one of your own")

    def _write(self, path: Path, key: str, record: Record | None) -> None:
        if record is None:
            path.unlink(missing_ok=True)
            return
        self._directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._check_directory()
        # mkstemp makes it 0600, whatever the umask.
        descriptor, temporary = tempfile.mkstemp(dir=self._directory, prefix=".new-")
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump({"key": key, **record}, file)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
            raise


Record: TypeAlias = dict[str, object]


def plain(record: Grant | RegisteredClient) -> Record:
    """What is written down, secrets in the clear."""
    found = attrs.asdict(record, recurse=False)
    return {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in found.items()
        if value is not None
    }


def read_client(record: Mapping[str, object]) -> RegisteredClient | None:
    """Read what `plain` made; None of anything else."""
    client_id = _text(record, "client_id")
    if client_id is None:
        return None
    return RegisteredClient(
        client_id=client_id,
        client_secret=_secret(record, "client_secret"),
        auth_method=_text(record, "auth_method"),
        secret_expires_at=_number(record, "secret_expires_at"),
        redirect_uris=_texts(record, "redirect_uris"),
        issuer=_text(record, "issuer"),
    )


def read_grant(record: Mapping[str, object]) -> Grant | None:
    """Read what `plain` made; None of anything else."""
    issuer, resource = _text(record, "issuer"), _text(record, "resource")
    client_id, token = _text(record, "client_id"), _secret(record, "access_token")
    if issuer is None or resource is None or client_id is None or token is None:
        return None
    if not sendable(token.reveal()):
        return None
    return Grant(
        issuer=issuer,
        resource=resource,
        client_id=client_id,
        access_token=token,
        token_type=_text(record, "token_type") or "Bearer",
        refresh_token=_secret(record, "refresh_token"),
        expires_at=_number(record, "expires_at"),
        scopes=_texts(record, "scopes"),
        dpop_key=_secret(record, "dpop_key"),
    )


def _text(record: Mapping[str, object], name: str) -> str | None:
    value = record.get(name)
    return value if isinstance(value, str) else None


def _secret(record: Mapping[str, object], name: str) -> Secret | None:
    value = _text(record, name)
    return None if value is None else Secret(value)


MAX_TOKEN = 32_768
"""Characters of a token; most servers take no header field of a quarter of that."""


def sendable(token: str) -> bool:
    """Whether a token can stand in a header field. Others would be quoted in somebody's error."""
    return 0 < len(token) <= MAX_TOKEN and is_printable(token) and token == token.strip()


def seconds(value: object) -> float | None:
    """A number of seconds out of JSON; None of anything else, and of what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return None if math.isnan(found) else found


def _number(record: Mapping[str, object], name: str) -> float | None:
    return seconds(record.get(name))


def _texts(record: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = record.get(name)
    items = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(item for item in items if isinstance(item, str))


def _opened(path: str, flags: int) -> int:
    # A pipe would be waited for, so it is opened without.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
