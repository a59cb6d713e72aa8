"""What reaches upstreams, and what they do in return: injection, outages, answers that break."""

import json

import pytest
import trio

from tests.hardening.attackers import ask, call, is_served, post
from tests.hardening.target import (
    OPERATIONS,
    Target,
    Upstream,
    back_to_baseline,
    document,
    operation,
    size,
    until,
)

CRLF = "x\r\nX-Injected: yes\r\n\r\nGET /injected HTTP/1.1\r\nHost: x\r\n\r\n"
NAMES = [
    "../../admin",
    "..%2f..%2fadmin",
    "%2e%2e/%2e%2e/admin",
    "..\\admin",
    "a/../../b",
    ".",
    "..",
    "",
    "//evil.example/",
    "http://evil.example/",
    "@evil.example",
    "a?q=1&r=2",
    "a#b",
    "a;b=c",
    "\x00",
    "\u202e\u2028",
    "\ud7ff\uffff",
    CRLF,
    "x HTTP/1.1\r\nHost: evil.example",
    "a" * 20_000,
]


async def result_of(target, name, arguments):
    status, _, body = await ask(target, post(call(name, arguments)))
    assert status == 200, body
    return json.loads(body)["result"]


@pytest.mark.parametrize("field", ["name", "q", "note", "cookie"])
async def test_arguments_stay_in_their_place_of_the_request(target, field):
    """Path, query, header and cookie: what is sent is one request, to that host, of that form."""
    for text in NAMES:
        arguments = {"name": "n", field: text}
        result = await result_of(target, "place", arguments)
        if result.get("isError"):
            continue  # refused before anything was sent, or by the limit of the upstream's URL
        lines = result["structuredContent"]["head"].split("\r\n")
        method, path, version = lines[0].split(" ")
        assert (method, version) == ("GET", "HTTP/1.1")
        where, _, query = path.partition("?")
        assert where.startswith("/things/")
        assert where.endswith("/end")
        middle = where.removeprefix("/things/").removesuffix("/end")
        assert "/" not in middle
        assert middle not in {".", "..", ""}
        assert query.count("&") == 0
        fields = [line.partition(":")[0].lower() for line in lines[1:]]
        assert fields.count("host") == 1
        assert "x-injected" not in fields
        assert not [line for line in lines if "evil.example" in line and line.startswith("host")]
        assert len(fields) == len(set(fields))


async def test_answers_that_break_are_errors_of_their_call(target):
    before = target.footprint()
    for _ in range(size(5, 100)):
        for name in ("half", "junk"):
            result = await result_of(target, name, {})
            assert result["isError"] is True
    await back_to_baseline(target, before)


async def test_a_registry_and_an_upstream_may_die_and_come_back_under_load(tmp_path):
    """The catalog stays while its registry is gone; calls fail by name, and work again."""
    library = tmp_path / "library.json"
    library.write_text(document(*OPERATIONS))
    registry, upstream = Upstream(library), Upstream(library)
    target = None
    try:
        registry.start()
        upstream.start()
        target = Target(
            tmp_path,
            upstream=upstream.url,
            registry=f"{registry.url}/registry",
            catalog="allow_http = true\nallow_private = true",
        )
        await is_served(target)
        await result_of(target, "place", {"name": "n"})
        before = target.footprint()
        outcomes = []

        async def load():
            while True:
                result = await result_of(target, "place", {"name": "n"})
                outcomes.append(bool(result.get("isError")))
                await is_served(target)

        async def all_end(*, in_error):
            """Wait until the next calls all end in this way."""
            outcomes.clear()
            await until(lambda: outcomes[-8:] == [in_error] * 8)

        for number in range(size(2, 20)):
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(load)
                await all_end(in_error=False)
                registry.kill()
                upstream.kill()
                await all_end(in_error=True)
                await trio.to_thread.run_sync(upstream.start)
                await all_end(in_error=False)
                assert target.catalog()["served"] == len(OPERATIONS) + number
                more = [operation(f"more_{each}") for each in range(number + 1)]
                library.write_text(document(*OPERATIONS, *more))
                await trio.to_thread.run_sync(registry.start)
                await target.until_catalog("served", len(OPERATIONS) + number + 1)
                nursery.cancel_scope.cancel()
        await back_to_baseline(target, before)
        assert target.faults() == []
    finally:
        if target is not None:
            target.close()
        registry.kill()
        upstream.kill()
