"""Questions in the stateless era: the sealed state, the keys, and the books of one round (R).

A handler that asks is ended, its questions become the result, and the retry runs it from
the start with the answers so far. Everything it needs for that travels in `requestState`.
Pure: who ends the handler, and when, is decided in `session.asking`.

The key of a question. Tasks of one handler run in no order that could be repeated, so the
number of a question proves nothing. A question is therefore known by its content: method
and digest of the parameters, and a number only among equal ones, whose answers may stand
for each other. What is asked differently gets no old answer but is asked anew. A handler
whose texts change from run to run (a time, a random number) gives the key itself.

The state is encrypted and authenticated (AES-256-GCM under a key of its own, derived from
one of the ring by a random salt) and bound to server, principal, method and parameters by
the authenticated data, so a state that is presented elsewhere does not even decrypt. The
principal there is the transport's. One whom a middleware has settled is known only later, and
not yet when a layer around it asks; so it stands in the state, see `Round.claim`. The state
proves what was said, not that it is used one time: who must rule out a second use (R6)
has to remember it by himself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable
from typing import cast

import attrs

from mcp_trio.errors import ConfigurationError, InvalidParamsError, MCPError
from mcp_trio.jsonrpc import codec
from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.rounds import InputRequiredResult

KEY_BYTES = 32
_FORMAT = b"\x02"
_KEY_ID = 4
_SALT = 16
_NONCE = 12
_HEAD = len(_FORMAT) + _KEY_ID + _SALT + _NONCE
MAX_STATE = 1 << 20
"""Bytes of what may be remembered of one call."""
MAX_KEY = 128
"""Characters of a key that a handler gives."""
NOT_OF_THE_CALL = frozenset({"_meta", "inputResponses", "requestState"})
"""Parameters that differ between the rounds of one call."""


class StateError(InvalidParamsError):
    """A `requestState` that is refused: not ours, changed, or meant for something else.

    One text for all of it, because the difference is of use to nobody but an attacker.
    """

    def __init__(self) -> None:
        super().__init__("requestState is not valid for this request")


class KeyRing:
    """The keys of one server, or of all its replicas. The first one seals, every one opens.

    To rotate, put the new key first and take the old one away once its states have expired.
    """

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        """Take the keys.

        Args:
            keys: 32 random bytes each; none at all means one of this process's own.

        Raises:
            ConfigurationError: a key of another length.
        """
        if any(len(key) != KEY_BYTES for key in keys):
            raise ConfigurationError(f"a state key has {KEY_BYTES} bytes")
        # Slow to import, and clients need none of it: when there is a server, not in a request.
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._cipher, self._refusal = AESGCM, InvalidTag
        keys = keys or (os.urandom(KEY_BYTES),)
        self._first = keys[0]
        # Of two keys with one id the newer one is used; the id only saves trying them all.
        self._by_id = {_key_id(key): key for key in reversed(keys)}

    def seal(self, payload: bytes, bound: bytes) -> str:
        """Encrypt a payload for whoever presents the same `bound` bytes."""
        salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
        head = _FORMAT + _key_id(self._first) + salt + nonce
        sealed = self._cipher(_derive(self._first, salt)).encrypt(nonce, payload, head + bound)
        return _encode(head + sealed)

    def open(self, text: str, bound: bytes) -> bytes:
        """Give the payload back.

        Raises:
            StateError: not sealed by one of these keys, changed in any bit, or bound to
                something else.
        """
        data = _decode(text)
        key = self._by_id.get(data[len(_FORMAT) : len(_FORMAT) + _KEY_ID])
        if key is None or len(data) < _HEAD or not data.startswith(_FORMAT):
            raise StateError
        head, salt = data[:_HEAD], data[_HEAD - _NONCE - _SALT : _HEAD - _NONCE]
        try:
            cipher = self._cipher(_derive(key, salt))
            return cipher.decrypt(head[-_NONCE:], data[_HEAD:], head + bound)
        except self._refusal:
            raise StateError from None


def _key_id(key: bytes) -> bytes:
    return hmac.digest(key, b"mcp_trio state key id", "sha256")[:_KEY_ID]


def _derive(key: bytes, salt: bytes) -> bytes:
    # A key of its own for each state, so that random nonces never come near their limit.
    return hmac.digest(key, b"mcp_trio state" + salt, "sha256")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise StateError from None
    # The last character has bits that mean nothing; they must not make a second spelling.
    if _encode(data) != text:
        raise StateError
    return data


@attrs.frozen(kw_only=True)
class RoundSettings:
    """How a server asks in rounds."""

    keys: KeyRing
    ttl: float
    """Seconds in which an answer has to come, each round anew."""
    max_rounds: int
    """Questions in a row that one call may be answered with."""


@attrs.frozen(kw_only=True)
class Ask:
    """One question of a handler, as it travels."""

    method: str
    params: JSONObject
    key: str | None = None
    """Given by the handler; None lets the content decide."""

    @property
    def identity(self) -> str:
        """What makes it the same question in another run."""
        if self.key is not None:
            return self.method
        digest = hashlib.sha256(codec.encode_sorted(self.params)).hexdigest()
        return f"{self.method} {digest}"

    @property
    def name(self) -> str:
        """The key it gets, if nothing else has it yet."""
        return self.key or f"{self.method.partition('/')[0]}-{self.identity[-64:-48]}"


@attrs.define
class Memory:
    """What one call remembers from round to round; the payload of the state."""

    number: int = 0
    """Rounds so far."""
    asked: dict[str, str] = attrs.field(factory=dict[str, str])
    """The questions of the last round: identity by key."""
    answers: dict[str, tuple[str, JSONObject]] = attrs.field(
        factory=dict[str, tuple[str, JSONObject]]
    )
    """Identity and answer by key."""
    once: JSONObject = attrs.field(factory=dict[str, object])
    """Results of side effects by key."""
    caller: tuple[str | None] | None = None
    """The subject of the principal for whom the handler ran; None if it has not been reached."""

    def dump(self, expires: float) -> bytes:
        """Write it down with the time of its end, in seconds since 1970."""
        return codec.encode_value(
            {"v": [expires, self.number, self.asked, self.answers, self.once, self.caller]}
        )

    @classmethod
    def load(cls, payload: bytes, now: float) -> Memory:
        """Read it again. The payload is authentic, so its shape is not in question.

        Raises:
            InvalidParamsError: it has expired.
        """
        plain = cast("JSONObject", codec.decode_value(payload))
        expires, number, asked, answers, once, caller = cast("list[object]", plain["v"])
        if now >= cast("float", expires):
            raise InvalidParamsError("requestState has expired: call again")
        return cls(
            number=cast("int", number),
            asked=cast("dict[str, str]", asked),
            answers={
                key: (identity, answer)
                for key, (identity, answer) in cast(
                    "dict[str, tuple[str, JSONObject]]", answers
                ).items()
            },
            once=cast("JSONObject", once),
            caller=None if caller is None else (cast("list[str | None]", caller)[0],),
        )


def binding(server: str, subject: str | None, method: str, params: JSONObject) -> bytes:
    """What a state is bound to: the server, who calls, and what is called with what."""
    call = {key: value for key, value in params.items() if key not in NOT_OF_THE_CALL}
    digest = hashlib.sha256(codec.encode_sorted(call)).hexdigest()
    return codec.encode_value([server, subject, method, digest])


class Round:
    """The books of one run of a handler: what is answered, and what has to be asked."""

    def __init__(
        self,
        settings: RoundSettings,
        bind: Callable[[], bytes],
        memory: Memory | None,
        responses: JSONObject,
    ) -> None:
        """Make the books; see `open_round`."""
        self._settings = settings
        self._bind = bind
        self._first = memory is None
        """Nothing was remembered: the first run, or a client that lost the state."""
        self.memory = memory or Memory()
        self._responses = responses
        self._used: set[str] = set()
        self._new: dict[str, Ask] = {}

    def enter(self, ask: Ask) -> tuple[str, object | None]:
        """Take a question; give its key and the answer, None if there is none yet.

        The answer is what the client sent and not yet checked.
        """
        key, number = ask.name, 1
        while key in self._used:
            number += 1
            key = f"{ask.name}-{number}"
        self._used.add(key)
        identity = ask.identity
        known = self.memory.answers.get(key)
        if known is not None and known[0] == identity:
            return key, known[1]
        response = self._responses.get(key)
        # Without a state the key alone has to do: the answer is the client's own either way.
        if response is not None and (self._first or self.memory.asked.get(key) == identity):
            if not isinstance(response, dict):
                return key, response
            plain = cast("JSONObject", response)
            self.memory.answers[key] = (identity, plain)
            return key, plain
        self._new[key] = ask
        return key, None

    def claim(self, subject: str | None) -> None:
        """Say for whom the handler runs. From now on the state is of use to nobody else.

        Raises:
            StateError: it was somebody else before.
        """
        if self.memory.caller not in {None, (subject,)}:
            raise StateError
        self.memory.caller = (subject,)

    def withdraw(self, key: str) -> None:
        """Take a question back: the handler does not wait for it any more."""
        self._new.pop(key, None)

    def question(self, now: float) -> InputRequiredResult:
        """The result that asks for what is missing, with everything known in its state.

        Args:
            now: seconds since 1970.

        Raises:
            MCPError: more rounds or more to remember than allowed.
        """
        memory = self.memory
        if memory.number >= self._settings.max_rounds:
            raise MCPError(f"the call was not done after {memory.number} rounds of questions")
        for key, identity in memory.asked.items():
            # Asked, answered, and not reached in this run: nobody wants to answer it again.
            response = self._responses.get(key)
            if key not in memory.answers and key not in self._new and isinstance(response, dict):
                memory.answers[key] = (identity, cast("JSONObject", response))
        memory.number += 1
        memory.asked = {key: ask.identity for key, ask in self._new.items()}
        payload = memory.dump(now + self._settings.ttl)
        if len(payload) > MAX_STATE:
            raise MCPError("the call has more to remember than fits into a state")
        return InputRequiredResult(
            input_requests={
                key: {"method": ask.method, "params": ask.params}
                for key, ask in sorted(self._new.items())
            }
            or None,
            request_state=self._settings.keys.seal(payload, self._bind()),
        )


def open_round(
    settings: RoundSettings,
    bind: Callable[[], bytes],
    *,
    state: str | None,
    responses: JSONObject | None,
    now: float,
) -> Round:
    """Begin a run with what the request brought.

    Args:
        settings: of the server.
        bind: gives what the state has to be bound to, see `binding`; most calls never ask
            and are spared it.
        state: the `requestState` of the request.
        responses: its `inputResponses`; what was not asked is ignored.
        now: seconds since 1970.

    Raises:
        InvalidParamsError: the state is not ours, not of this call, or too old (R6).
    """
    memory = None
    if state is not None:
        memory = Memory.load(settings.keys.open(state, bind()), now)
    return Round(settings, bind, memory, responses or {})
