"""A secret value that does not show itself.

Whoever needs the value calls `reveal` where it goes onto the wire. It has no text form, is
not copied into anything that is logged, and `mask` takes it out of other people's text.
"""

from __future__ import annotations

import base64
import hmac
import html.entities
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import attrs

from mcp_trio.errors import ConfigurationError

logger = logging.getLogger("mcp_trio.secrets")

MASK = "***"
_NAMED = html.entities.codepoint2name
_LETTERS = re.compile(r"[0-9A-Za-z]+")
"""Signs that nobody escapes."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SHORTEST = 4
"""A shorter secret is not searched for in text: it would mask half of every word."""


class Secret:
    """A string that is shown as `***` wherever it is not revealed on purpose."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value. Call it where it goes onto the wire, and nowhere else."""
        return self._value

    def known(self) -> tuple[str, ...]:
        """Every value that must not be shown: this one, and those it had before."""
        return (self.reveal(),)

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, format_spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.reveal().encode(), other.reveal().encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


def mask(text: str, secrets: Iterable[Secret]) -> str:
    """Replace every secret in a text, however it is written there.

    That is as it is, in base64, or with any of its signs escaped as URLs, JSON or HTML do.
    """
    known = {value for secret in secrets for value in secret.known()}
    values = [value for value in known if len(value) >= SHORTEST and _may_be_in(text, value)]
    # A longer one may hold a shorter one.
    forms = [form for value in sorted(values, key=len, reverse=True) for form in _forms(value)]
    return re.sub("|".join(forms), MASK, text) if forms else text


def _may_be_in(text: str, value: str) -> bool:
    """Whether to look closer: making the patterns takes far longer than telling that it is not."""
    # These stand in every form but base64.
    letters = max(_LETTERS.findall(value), key=len, default="")
    return letters in text or any(form in text for form in _in_base64(value))


def _in_base64(value: str) -> set[str]:
    raw = value.encode("utf-8", "surrogatepass")
    # The padding is left out by many, and says nothing.
    return {
        encode(raw).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode)
    }


def _forms(value: str) -> Iterator[str]:
    """Patterns of a value, in all ways to write it."""
    yield from map(re.escape, _in_base64(value))
    yield from {re.escape(value), re.escape(json.dumps(value)[1:-1])}
    yield "".join(map(_sign, value))


def _sign(sign: str) -> str:
    """A pattern of a sign, as it is and escaped. It never looks back, so no text makes it slow."""
    if sign.isascii() and sign.isalnum():
        return sign
    code = ord(sign)
    octets = "".join(f"%(?:25)*{octet:02x}" for octet in sign.encode("utf-8", "surrogatepass"))
    in_json = re.escape(json.dumps(sign)[1:-1])
    named = [re.escape(f"&{_NAMED[code]};")] if code in _NAMED else []
    # What is shorter comes later: the first that fits is it.
    ways = [
        f"&#0*{code};",
        f"(?i:&#x0*{code:x};)",
        *named,
        f"(?i:{octets})",
        rf"(?i:\\u{code:04x})",
        rf"\\{re.escape(sign)}",
        f"(?i:{in_json})",
        *([r"\+"] if sign == " " else []),
        re.escape(sign),
    ]
    return f"(?>{'|'.join(ways)})"


class FileSecret(Secret):
    """A secret that is read again when its file changes, as rotation does.

    A file that is gone, empty or unreadable changes nothing: the last good value stays, and the
    log tells once. So it does with one of several lines, unless that is what it is to have.
    """

    __slots__ = ("_earlier", "_lines", "_path", "_seen", "_warned")

    EARLIER = 4
    """Values before the present one that are still masked."""

    def __init__(self, path: Path, *, lines: bool = False) -> None:
        """Read it.

        Args:
            path: the file.
            lines: it may have several, as a private key does and no token.

        Raises:
            OSError, ValueError: it cannot be read, or holds no usable secret.
        """
        self._path = path
        self._lines = lines
        self._seen = _stamp(path)
        self._earlier: tuple[str, ...] = ()
        self._warned = False
        super().__init__(_read(path, lines=lines))

    def reveal(self) -> str:
        """The value as the file has it now."""
        try:
            seen = _stamp(self._path)
            if seen == self._seen:
                return self._value
            value = _read(self._path, lines=self._lines)
        except (OSError, ValueError) as error:
            if not self._warned:
                logger.warning("%s: %s; the last secret stays", self._path, _trouble(error))
                self._warned = True
            return self._value
        self._warned = False
        if value != self._value:
            self._earlier = (self._value, *self._earlier)[: self.EARLIER]
            self._value = value
        self._seen = seen
        return value

    def known(self) -> tuple[str, ...]:
        """The value now, and those before it."""
        return (self.reveal(), *self._earlier)

    def __hash__(self) -> int:
        return hash((FileSecret, self._path))

    __eq__ = Secret.__eq__


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(path: Path, *, lines: bool) -> str:
    value = path.read_text(encoding="utf-8").strip()
    trouble = unusable(value, lines=lines)
    if trouble is not None:
        raise ValueError(trouble)
    return value


def unusable(value: str, *, lines: bool = False) -> str | None:
    """Why a text can be no secret, without telling it; None if it can.

    Args:
        value: the text, without white space around it.
        lines: whether it may have several lines.
    """
    if not value:
        return "is empty"
    if not lines and _CONTROL.search(value):
        return "holds a line break or another control character, and is to be one line"
    return None


def _trouble(error: OSError | ValueError) -> str:
    """What is wrong with a file of a secret, and nothing of what is in it."""
    if isinstance(error, OSError):
        return error.strerror or "cannot be read"
    return "is not UTF-8 text" if isinstance(error, UnicodeError) else str(error)


def shown_url(url: str) -> str:
    """A URL for people: without user, query and fragment, where secrets live, and not too long."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no URL)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200]


@attrs.frozen(kw_only=True)
class SecretSource:
    """Where the secrets of settings are: the environment, and files beside the settings."""

    folder: Path
    """What relative paths are relative to."""
    environment: Mapping[str, str] = attrs.field(default=os.environ, repr=False)

    def secret(self, whose: str, name: str, *, env: str | None, file: str | None) -> Secret:
        """Fetch a secret that settings name as `<name>_env` or `<name>_file`.

        Raises:
            ConfigurationError: neither or both are named, or there is nothing; never tells more.
        """
        if (env is None) == (file is None):
            raise ConfigurationError(f"{whose}: give either {name}_env or {name}_file")
        # A token or password is one line; of other things, such as keys, nobody knows.
        several = name != "secret"
        if env is not None:
            value = self.environment.get(env, "")
            if not value:
                raise ConfigurationError(f"{whose}: {env} is not set")
            if not _is_text(value):
                raise ConfigurationError(f"{whose}: {env} is not UTF-8")
            trouble = None if several else unusable(value)
            if trouble is not None:
                raise ConfigurationError(f"{whose}: {env} {trouble}")
            return Secret(value)
        try:
            return FileSecret(self.folder / (file or ""), lines=several)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{whose}: cannot read its {name}_file {file}: {_trouble(error)}"
            ) from error


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
