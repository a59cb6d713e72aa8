"""How a command of the client proves who asks: its options, and what is made of them.

Secrets come from the environment or from a person's browser, never from the command line, which
everybody on the machine can read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
import click

if TYPE_CHECKING:
    from mcp_trio.client.options import Authorization

Function = TypeVar("Function", bound=Callable[..., None])

HINT = "the server wants to know who asks: try --login, or --token-env"


@attrs.frozen(kw_only=True)
class Login:
    """What the command line says about who asks."""

    login: bool
    token_env: str | None
    client_id: str | None
    client_secret_env: str | None
    scope: tuple[str, ...]
    tokens: Path | None
    allow_private: bool

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Login:
        """Take the options of `login_options` out of all that click found."""
        return cls(**{field.name: options.pop(field.name) for field in attrs.fields(cls)})

    @property
    def chosen(self) -> bool:
        """Whether a way to a token was chosen."""
        return self.login or self.token_env is not None or self.client_id is not None

    def authorization(self, environment: Mapping[str, str] = os.environ) -> Authorization | None:
        """What proves who asks; None if nothing was chosen.

        Raises:
            click.UsageError: options that do not go together, or a variable that is not set.
        """
        self._check()
        if not self.chosen:
            return None
        # It takes a while to load, and most commands do without.
        from mcp_trio.auth import (  # noqa: PLC0415
            BearerToken,
            ClientCredentials,
            FileStore,
            NetworkPolicy,
            OAuth,
            RegisteredClient,
        )

        if self.token_env is not None:
            return BearerToken(_read(environment, self.token_env))
        name = self.client_secret_env
        secret = None if name is None else _read(environment, name)
        network = NetworkPolicy(allow_private=self.allow_private)
        if not self.login:
            return ClientCredentials(
                client_id=cast("str", self.client_id),
                client_secret=secret,
                scopes=self.scope,
                network=network,
            )
        registered = None
        if self.client_id is not None:
            from mcp_trio.secrets import Secret  # noqa: PLC0415

            hidden = None if secret is None else Secret(secret)
            registered = RegisteredClient(client_id=self.client_id, client_secret=hidden)
        return OAuth(
            registered=registered,
            client_name="mcp-trio",
            scopes=self.scope,
            network=network,
            store=FileStore(self._directory()),
        )

    def _check(self) -> None:
        if self.token_env is not None and (self.login or self.client_id or self.scope):
            raise click.UsageError("--token-env goes with no other way to a token")
        if self.client_secret_env is not None and self.client_id is None:
            raise click.UsageError("--client-secret-env needs --client-id")
        if self.client_id is not None and not self.login and self.client_secret_env is None:
            raise click.UsageError("--client-id needs --login or --client-secret-env")
        if self.scope and not self.login and self.client_id is None:
            raise click.UsageError("--scope needs --login or --client-id")

    def _directory(self) -> Path:
        """Where this client's tokens are kept: those of another client are somebody else's."""
        base = self.tokens or Path(click.get_app_dir("mcp-trio")) / "tokens"
        if self.client_id is None:
            return base
        return base / hashlib.sha256(self.client_id.encode()).hexdigest()[:16]


def _read(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise click.UsageError(f"the environment variable {name} is not set")
    return value


def login_options(command: Function) -> Function:
    """Add the options; `Login.taken_from` takes them."""
    for decorate in reversed(
        (
            click.option(
                "--login", is_flag=True, help="Log in with a browser if the server asks for it."
            ),
            click.option(
                "--token-env", metavar="NAME", help="Environment variable that holds a token."
            ),
            click.option(
                "--client-id",
                metavar="ID",
                help="Client registered by hand: of a person with --login, else of a program.",
            ),
            click.option(
                "--client-secret-env",
                metavar="NAME",
                help="Environment variable that holds its secret.",
            ),
            click.option("--scope", multiple=True, help="Ask for this scope in any case."),
            click.option(
                "--tokens",
                type=click.Path(file_okay=False, path_type=Path),
                help="Directory where --login keeps tokens for the next command.",
            ),
            click.option(
                "--allow-private",
                is_flag=True,
                help="The authorization server may have a private address.",
            ),
        )
    ):
        command = decorate(command)
    return command
