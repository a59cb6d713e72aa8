"""TLS of a service: its options, the context that new handshakes use, and what a scope tells.

Handshakes themselves belong to `arrival`. Certificates are looked at on a timer by one task, and
whenever somebody asks; what is on disk replaces what is in use only if it can be used.
"""

from __future__ import annotations

import math
import os
import ssl
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import attrs
import trio
from cryptography import x509

from mcp_trio.errors import ConfigurationError

from .asgi_call import LOGGER

ClientCertificates: TypeAlias = Literal["none", "optional", "required"]
"""Whether clients are asked for a certificate, and whether they have to have one."""

EXPIRES_SOON = timedelta(days=14)
"""How long before its end a certificate is warned of."""
_DAY = 86_400.0
"""Seconds between two warnings of one that is in use."""

_WANTED = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLSv1.2": 0x0303, "TLSv1.3": 0x0304}
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and AEAD only, which is also what RFC 9113 (9.2.2) wants."""
_OPTIONS = (
    ssl.OP_NO_COMPRESSION
    | ssl.OP_NO_RENEGOTIATION
    | ssl.OP_CIPHER_SERVER_PREFERENCE
    | ssl.OP_SINGLE_ECDH_USE
)

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


@attrs.frozen(kw_only=True)
class TLSOptions:
    """Where a service has its certificate, and whom it asks for one. TLS 1.2 is the least."""

    cert_file: str | os.PathLike[str]
    """Certificate (PEM), followed by the ones that sign it."""
    key_file: str | os.PathLike[str]
    """Its key (PEM), not encrypted."""
    client_ca_file: str | os.PathLike[str] | None = None
    """Authorities (PEM) whose certificates clients may show."""
    client_certificates: ClientCertificates = "none"
    """Ask clients for a certificate: `none`, `optional` or `required`. One that none of
    `client_ca_file` has signed ends the handshake, also where it is optional."""
    reload_interval: float = 10.0
    """Seconds between looks whether a file has changed."""

    def __attrs_post_init__(self) -> None:
        if self.client_certificates not in get_args(ClientCertificates):
            wanted = " or ".join(get_args(ClientCertificates))
            raise ConfigurationError(f"client_certificates must be {wanted}")
        if (self.client_ca_file is None) != (self.client_certificates == "none"):
            raise ConfigurationError(
                "client_ca_file and client_certificates belong together: "
                "the one says whose certificates count, the other whether they are asked for"
            )
        if self.reload_interval <= 0:
            raise ConfigurationError("reload_interval must be greater than 0")


class UnfitCertificateError(Exception):
    """A client's certificate that OpenSSL took does not count: it is over, or cannot be read."""


class UnreadableFileError(ConfigurationError):
    """A file cannot be read, or is to hold certificates and does not; the text says which."""


class Certificates:
    """The context of a service, kept up to date with its files."""

    def __init__(self, options: TLSOptions) -> None:
        """Load the files.

        Raises:
            ConfigurationError: they cannot be used; the text says which and why.
        """
        self._options = options
        self._stamp = self._look()
        self._context = _load(options)
        self._times: tuple[datetime, datetime] = _times(options.cert_file)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next handshake. Connections keep the one they have begun with."""
        return self._context

    @property
    def expires(self) -> datetime:
        """When what is in use ends: the certificate, or one that came with it."""
        return self._times[1]

    def reload(self) -> bool:
        """Load the files anew; on a fault keep what is in use, log why, and return False.

        A certificate that is over, or not yet good, is a fault if it is another one than before:
        the one in use may run out, and its authorities are still to be kept up to date.
        """
        self._stamp = self._look()
        name = os.fspath(self._options.cert_file)
        try:
            context = _load(self._options)
            times = _times(name)
            untimely = _untimely(times, _now())
            if untimely and times != self._times:
                raise ConfigurationError(f"{name} {untimely}")
        except ConfigurationError as error:
            LOGGER.error("the certificate in use stays: %s", error)
            return False
        self._context, self._times = context, times
        ending = untimely or self._ending()
        if ending:
            LOGGER.warning("certificate loaded from %s, which %s", name, ending)
        else:
            LOGGER.info("certificate loaded from %s", name)
        return True

    async def watch(self) -> None:
        """Load changed files, for ever. A pair that is half written is looked at again.

        Within `EXPIRES_SOON` of its end the certificate in use is warned of, now and each day.
        """
        again = -math.inf
        while True:
            ending = self._ending()
            if ending and trio.current_time() >= again:
                again = trio.current_time() + _DAY
                name = os.fspath(self._options.cert_file)
                LOGGER.warning("the certificate in use, %s, %s", name, ending)
            await trio.sleep(self._options.reload_interval)
            if self._look() != self._stamp:
                self.reload()

    def _ending(self) -> str | None:
        """That the one in use is over, or will be soon."""
        now = datetime.now(UTC)
        over = _untimely(self._times, now)
        soon = self.expires - now < EXPIRES_SOON
        return over or (f"expires on {self.expires:%Y-%m-%d}" if soon else None)

    def _look(self) -> Stamp:
        options = self._options
        files = (options.cert_file, options.key_file, options.client_ca_file)
        return tuple(_stamp(file) for file in files if file is not None)


def _now() -> datetime:
    return datetime.now(UTC)


def _untimely(times: tuple[datetime, datetime], now: datetime) -> str | None:
    begin, end = times
    if end <= now:
        return f"expired on {end:%Y-%m-%d}"
    return f"is not valid before {begin:%Y-%m-%d}" if begin > now else None


def _stamp(file: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _load(options: TLSOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= _OPTIONS
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["h2", "http/1.1"])
    _read_certificates(options.cert_file)
    key = _read(options.key_file)
    try:
        # Without a password OpenSSL would ask for one, on the terminal.
        context.load_cert_chain(options.cert_file, options.key_file, password=lambda: "")
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        raise ConfigurationError(_misfit(options, key, error)) from error
    if options.client_ca_file is not None:
        _read_certificates(options.client_ca_file)
        try:
            context.load_verify_locations(cafile=options.client_ca_file)
        except OSError as error:
            name = os.fspath(options.client_ca_file)
            raise UnreadableFileError(f"{name} holds a certificate that is none") from error
    context.verify_mode = _WANTED[options.client_certificates]
    if context.verify_mode is not ssl.CERT_NONE:
        # A session that is resumed has the certificate that it began with, and no look at its end
        # or at its successor. TLS 1.2 resumes all the same; there `tls_extension` looks.
        context.num_tickets = 0
    return context


def _read(file: str | os.PathLike[str]) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        reason = f"cannot read {os.fspath(file)}: {error.strerror}"
        raise UnreadableFileError(reason) from error


def _read_certificates(file: str | os.PathLike[str]) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(file))
    except (ValueError, x509.InvalidVersion) as error:
        raise UnreadableFileError(f"{os.fspath(file)} holds no certificates") from error


def _misfit(options: TLSOptions, held: bytes, error: Exception) -> str:
    """Why OpenSSL takes no certificate with this key, in words that say which file to mend."""
    cert, key = os.fspath(options.cert_file), os.fspath(options.key_file)
    if b"ENCRYPTED" in held:
        return f"{key} is encrypted, and nobody is there to type its password"
    if b"PRIVATE KEY-----" not in held:
        return f"{key} holds no private key"
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"{key} is not the key of {cert}"
    return f"cannot use {cert} with {key}: {getattr(error, 'reason', None) or error}"


def _times(file: str | os.PathLike[str]) -> tuple[datetime, datetime]:
    """From when to when a certificate is good, with those that come with it."""
    found = _read_certificates(file)
    try:
        begin = max(each.not_valid_before_utc for each in found)
        return begin, min(each.not_valid_after_utc for each in found)
    except ValueError as error:
        raise UnreadableFileError(f"{os.fspath(file)} has a date that is none") from error


def tls_extension(stream: trio.SSLStream[trio.abc.Stream]) -> dict[str, object]:
    """What the ASGI TLS extension (version 0.2) tells of a connection after its handshake.

    The chain is the client's own certificate: Python 3.11 does not give the rest of it.

    Raises:
        UnfitCertificateError: it does not count, so the connection must not.
    """
    secure: Any = stream  # it forwards what it does not have itself to the SSL object
    der: bytes | None = secure.getpeercert(binary_form=True)
    name, _, _ = secure.cipher() or ("", "", 0)
    subject = None
    chain: tuple[str, ...] = ()
    if der:
        chain = (ssl.DER_cert_to_PEM_cert(der),)
        subject = _subject(der)
    return {
        "server_cert": None,
        "client_cert_chain": chain,
        "client_cert_name": subject,
        "client_cert_error": None,
        "tls_version": _VERSIONS.get(secure.version()),
        "cipher_suite": _suite(name),
    }


def _subject(der: bytes) -> str:
    """Whom a client's certificate names, as in RFC 4514."""
    try:
        found = x509.load_der_x509_certificate(der)
        name, end = found.subject.rfc4514_string(), found.not_valid_after_utc
    except (ValueError, x509.InvalidVersion) as error:
        raise UnfitCertificateError("it cannot be read") from error
    if end <= _now():
        raise UnfitCertificateError("it is over")
    return name


@lru_cache(maxsize=64)
def _suite(name: str) -> int | None:
    """The number of a cipher suite in the registry of IANA."""
    known = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    known.set_ciphers("ALL:@SECLEVEL=0")
    found = next((cipher for cipher in known.get_ciphers() if cipher["name"] == name), None)
    return None if found is None else found["id"] & 0xFFFF
