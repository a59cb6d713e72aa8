"""The watch over secrets works, and an upstream that repeats what it got gives nothing away."""

import base64
import html
import json
import logging
import time
from urllib.parse import quote, quote_plus

import pytest
import trio

from mcp_trio.abc import RawEntry, Reading
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret, SecretSource, mask
from tests.canary import FORMS, TEXT, _Watch, search
from tests.runtime.conftest import make_view


@pytest.mark.parametrize("form", FORMS)
def test_the_watch_sees_a_secret_in_every_form(form):
    watch = _Watch()
    try:
        raise ValueError(f"with {form} in it")
    except ValueError as error:
        record = logging.LogRecord("x", 10, "", 0, "failed", (), (type(error), error, None))
        watch.emit(record)
    assert len(watch.found()) == 1
    with pytest.raises(AssertionError, match="a secret is in this"):
        search({"deep": [form]}, "this")


def test_the_watch_looks_for_other_secrets_too():
    watch = _Watch()
    watch.emit(logging.LogRecord("x", 10, "", 0, "one of-another %s", ("secret-of-a-test",), None))
    assert watch.found() == []
    assert len(watch.found({"secret-of-a-test"})) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", [200, 400, 500])
async def test_an_upstream_that_repeats_a_secret_in_its_failure_is_masked(
    bench, upstream, failure, form, status
):
    upstream.says({"error": {"message": f"bad {form} {form}"}}, status=status)
    fails = {"success_when": False, "error": {"message": "=body.error.message"}}
    text, _ = failure(await bench.call(output_mapping=fails))
    assert "***" in text
    assert upstream.last.header("x-canary") == TEXT


class Registry:
    """One operation, read once."""

    async def change_token(self):
        await trio.lowlevel.checkpoint()
        return "1"

    async def read(self, since):
        await trio.lowlevel.checkpoint()
        entries = [RawEntry(operation_id="crm.leads.get", fingerprint=b"1", view=make_view())]
        entries.append(RawEntry(operation_id="bad", fingerprint=b"2", view={**make_view(), "x": 1}))
        return Reading(token="1", entries=tuple(entries), complete=True)

    async def aclose(self):
        await trio.lowlevel.checkpoint()


async def test_a_snapshot_and_a_status_hold_no_secret(bench):
    actor = CatalogActor(Registry(), bench.compiler)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.run)
        await actor.ready.wait()
        nursery.cancel_scope.cancel()
    assert (len(actor.snapshot.entries), len(actor.status().quarantine)) == (1, 1)
    for entry in actor.snapshot.entries.values():
        search(entry, "an entry")
    search(actor.snapshot, "a snapshot")
    search(actor.status(), "a status")
    search(bench.connection, "a connection")
    search(bench.connections, "connections")


VALUE = 'k&y=1/2 "3"+\\é<€😀>'
WRITTEN = [
    VALUE,
    quote(VALUE, safe=""),
    quote(VALUE, safe="").lower(),
    quote(VALUE),
    quote_plus(VALUE),
    quote(quote(VALUE, safe=""), safe=""),
    json.dumps(VALUE)[1:-1],
    json.dumps(VALUE, ensure_ascii=False)[1:-1].replace("/", "\\/"),
    html.escape(VALUE),
    "".join(c if c.isalnum() else f"&#{ord(c)};" for c in VALUE),
    "".join(c if c.isalnum() else f"&#x{ord(c):X};" for c in VALUE),
    base64.b64encode(VALUE.encode()).decode(),
]


@pytest.mark.parametrize("written", WRITTEN)
def test_a_secret_is_masked_however_it_is_written(written):
    assert mask(f"a {written} b", [Secret(VALUE)]).rstrip("= b") == "a ***"


@pytest.mark.parametrize(
    ("text", "value"), [("\\" * 50_000, "\\" * 30 + "z"), ("%25" * 50_000, "/%" * 20 + "z")]
)
def test_no_text_makes_masking_slow(text, value):
    began = time.monotonic()
    assert mask(text, [Secret(value)]) == text
    assert time.monotonic() - began < 5


def test_a_secret_of_the_environment_has_to_be_text(tmp_path):
    source = SecretSource(folder=tmp_path, environment={"KEY": "half\udcff"})
    with pytest.raises(ConfigurationError, match="KEY is not UTF-8"):
        source.secret("x", "secret", env="KEY", file=None)
