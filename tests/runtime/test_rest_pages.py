"""Answers in pages: how the next is found, where it may lie, and what ends a walk."""

from __future__ import annotations

import json
import time

import pytest
import trio

from mcp_trio.catalog.operation import OperationError
from mcp_trio.runtime import expressions
from mcp_trio.runtime.adapters.rest_pages import next_link
from mcp_trio.runtime.http_connection import Auth
from mcp_trio.secrets import Secret

PATH = {"connection": "crm", "method": "GET", "path": "/leads"}


def paged(pagination, **changes):
    return {"target": {**PATH, "pagination": pagination}, "input_mapping": {}, **changes}


LINK = {"by": "link"}
CURSOR = {"by": "cursor", "parameter": "after", "items": "=body.items", "next": "=body.next"}
PAGE = {"by": "page", "parameter": "page"}
OFFSET = {"by": "offset", "parameter": "offset", "items": "=body.items", "more": "=body.more"}


@pytest.fixture
def book(upstream):
    """Makes the upstream answer one page after the other: (body, headers)."""

    def say(*pages):
        left = list(pages)

        async def handler(line, _seen):
            body, headers, *status = left.pop(0)
            await line.answer(json.dumps(body).encode(), *status, headers=headers)

        upstream.handler = handler

    return say


def targets(upstream):
    return [seen.target for seen in upstream.seen]


async def test_links_are_followed_to_the_last_page(bench, upstream, book, context_of, recorded):
    book(
        ([1, 2], [("link", '</leads?page=1>; rel="prev", <?page=2&q=a%20b>; rel="next"')]),
        ([3], [("link", f'<{upstream.url}/leads?page=3>; title="a, b"; rel="last next"')]),
        ([4, 5], [("link", "</leads?page=1>; rel=first")]),
    )
    context, told = recorded()
    operation = bench.compile(
        **paged(
            LINK,
            output_mapping={"result": {"n": "=length(body)", "all": "=body", "p": "=pages"}},
        )
    )
    result = await operation.call(context, {})
    assert targets(upstream) == ["/leads", "/leads?page=2&q=a%20b", "/leads?page=3"]
    assert result.structured_content == {"n": 5, "all": [1, 2, 3, 4, 5], "p": 3}
    assert told == [
        (1, None, "1 page, 2 items"),
        (2, None, "2 pages, 3 items"),
        (3, None, "3 pages, 5 items"),
    ]


async def test_a_link_may_stand_in_the_body(bench, upstream, book):
    book(({"d": [1], "next": "/leads?c=2"}, []), ({"d": [2], "next": None}, []))
    result = await bench.call({}, **paged({**LINK, "items": "=body.d", "next": "=body.next"}))
    assert result.content[0].text == "[1,2]"
    assert targets(upstream) == ["/leads", "/leads?c=2"]


async def test_a_cursor_goes_into_the_query_as_one_value(bench, upstream, book):
    book(
        ({"items": [1], "next": "a&b=c#d/%"}, []),
        ({"items": [], "next": 17}, []),
        ({"items": [2], "next": ""}, []),
    )
    result = await bench.call(
        {"q": "x"}, **paged(CURSOR, input_mapping={"query": {"q": "=args.q"}})
    )
    assert targets(upstream) == [
        "/leads?q=x",
        "/leads?q=x&after=a%26b%3Dc%23d%2F%25",
        "/leads?q=x&after=17",
    ]
    assert result.content[0].text == "[1,2]"


async def test_the_expressions_over_all_pages_have_their_steps_together(
    bench, upstream, book, failure, monkeypatch
):
    monkeypatch.setattr(expressions, "MAX_STEPS", 60)
    pagination = {**CURSOR, "max_pages": 50}
    pages = [({"items": [n], "next": n}, []) for n in range(1, 30)]
    book(*pages[:3], ({"items": []}, []))
    result = await bench.call({}, **paged(pagination))
    assert result.content[0].text == "[1,2,3]"
    book(*pages)
    text, _ = failure(await bench.call({}, **paged(pagination)))
    assert "takes too many steps" in text
    assert len(targets(upstream)) < 30


async def test_pages_are_counted_until_one_is_empty(bench, upstream, book):
    book(([1, 2], []), ([3], []), ([], []))
    result = await bench.call({}, **paged(PAGE))
    assert targets(upstream) == ["/leads?page=1", "/leads?page=2", "/leads?page=3"]
    assert result.content[0].text == "[1,2,3]"


async def test_items_are_counted_until_there_are_no_more(bench, upstream, book):
    book(({"items": [1, 2], "more": True}, []), ({"items": [3], "more": False, "total": 3}, []))
    mapping = {"result": {"items": "=body", "of": "=last_page.total", "whole": "=complete"}}
    result = await bench.call({}, **paged({**OFFSET, "first": 10}, output_mapping=mapping))
    assert targets(upstream) == ["/leads?offset=10", "/leads?offset=12"]
    assert result.structured_content == {"items": [1, 2, 3], "of": 3, "whole": True}


@pytest.mark.parametrize(
    "link",
    [
        "http://evil.test/leads",
        "https://127.0.0.1/leads",
        "//evil.test/leads",
        "http://127.0.0.1:1/leads",
        "http://169.254.169.254/latest/meta-data/",
        "/admin",
        "/apix/leads",
        "../admin",
        "/api/../admin",
        "/api/%2e%2e/admin",
        "/api/%252e%252e/admin",
        "/api/x%2f..%2f..%2fadmin",
        "/api\\..\\admin",
        "/api/a b",
        "/api/\u00e9",
        "/api/a\r\nx-evil: 1",
        "/api/" + "x" * 9000,
        "http://[bad/api",
        "http://127.0.0.1:x/api",
    ],
)
async def test_a_next_page_elsewhere_is_not_asked_for(upstream, make_bench, failure, book, link):
    bench = make_bench(f"{upstream.url}/api")
    book(({"d": [1], "next": link}, []))
    async with bench.connections:
        result = await bench.call({}, **paged({**LINK, "items": "=body.d", "next": "=body.next"}))
    text, told = failure(result)
    assert (told["stage"], told["code"]) == ("adapter_execution", "pagination")
    assert "next page" in text
    assert targets(upstream) == ["/api/leads"]


async def test_user_information_in_a_link_is_refused(bench, upstream, failure, book):
    evil = upstream.url.replace("http://", "http://user:pw@")
    book(([1], [("link", f"<{evil}/leads?page=2>; rel=next")]))
    assert failure(await bench.call({}, **paged(LINK)))[1]["code"] == "pagination"
    assert len(upstream.seen) == 1


async def test_a_key_in_the_query_is_sent_once_even_if_the_link_repeats_it(
    upstream, make_bench, book
):
    auth = Auth(kind="query", parameter="api_key", secret=Secret("s3cret"))
    bench = make_bench(upstream.url, auth=auth)
    book(([1], [("link", "</leads?api%5Fkey=s3cret&p=2&api_key=x>; rel=next")]), ([2], []))
    async with bench.connections:
        await bench.call({}, **paged(LINK))
    assert targets(upstream) == ["/leads?api_key=s3cret", "/leads?p=2&api_key=s3cret"]


@pytest.mark.parametrize("circle", ["/leads", "/leads?page=2"])
async def test_a_circle_is_noticed(bench, upstream, failure, book, circle):
    book(*[([1], [("link", f"<{link}>; rel=next")]) for link in ("/leads?page=2", circle)])
    text, told = failure(await bench.call({}, **paged(LINK)))
    assert "lead in a circle" in text
    assert (told["sub"], told["code"]) == ("malformed_reply", "pagination")
    assert len(upstream.seen) == 2
    book(*[({"items": [1], "next": "same"}, [])] * 2)
    text, _ = failure(await bench.call({}, **paged(CURSOR)))
    assert "lead in a circle" in text


def counting(upstream, size=2):
    async def handler(line, seen):
        number = int(seen.target.rpartition("=")[2])
        body = json.dumps(list(range(number * size, number * size + size))).encode()
        await line.answer(body)

    upstream.handler = handler


async def test_bounds_are_errors_unless_the_operation_cuts(bench, upstream, failure):
    counting(upstream)
    text, told = failure(await bench.call({}, **paged({**PAGE, "max_pages": 3})))
    assert text == (
        "[adapter_execution] there are more than 3 pages. "
        "Ask for less, for example with a filter or a smaller page."
    )
    assert (told["sub"], len(upstream.seen)) == ("response_items", 3)
    text, told = failure(await bench.call({}, **paged(PAGE)))
    assert "more than 10 pages" in text
    upstream.seen.clear()
    limits = {"execution_config": {"limits": {"items": 5}}}
    text, told = failure(await bench.call({}, **paged(PAGE, **limits)))
    assert "there are more than 5 items" in text
    assert (told["sub"], len(upstream.seen)) == ("response_items", 3)


async def test_a_walk_that_is_cut_says_that_it_is_not_complete(bench, upstream):
    counting(upstream)
    changes = {
        "output_mapping": {"result": {"items": "=body", "complete": "=complete"}},
        "execution_config": {"limits": {"items": 5, "on_exceed": "truncate"}},
    }
    result = await bench.call({}, **paged(PAGE, **changes))
    assert result.structured_content == {"items": [2, 3, 4, 5, 6], "complete": False}
    assert len(upstream.seen) == 3
    result = await bench.call({}, **paged({**PAGE, "max_pages": 1}, **changes))
    assert result.structured_content == {"items": [2, 3], "complete": False}


async def test_the_limit_of_bytes_is_for_all_pages_together(bench, upstream, failure):
    counting(upstream, size=20)
    config = {"limits": {"response_bytes": 150}}
    text, told = failure(await bench.call({}, **paged(PAGE, execution_config=config)))
    assert text.startswith("[adapter_execution] the upstream's pages together are larger than 150 ")
    assert (told["sub"], len(upstream.seen)) == ("response_bytes", 2)


async def test_the_deadline_ends_a_walk_and_says_how_far_it_came(bench, upstream, failure):
    async def slow(line, seen):
        if seen.target.endswith("=3"):
            await upstream.hang(line, seen)
        await line.answer(b"[1,2]")

    upstream.handler = slow
    config = {"timeout_ms": {"total": 400}}
    text, told = failure(await bench.call({}, **paged(PAGE, execution_config=config)))
    assert text == (
        "[adapter_execution] the time was over after 2 pages with 4 items, and there are more. "
        "Try again later."
    )
    assert (told["sub"], told["code"]) == ("timeout", "total")
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_cancelling_a_walk_closes_the_socket(bench, upstream):
    async def second(line, seen):
        if seen.target.endswith("=2"):
            nursery.cancel_scope.cancel()
            await upstream.hang(line, seen)
        await line.answer(b"[1]")

    upstream.handler = second
    async with trio.open_nursery() as nursery:
        await bench.call({}, **paged(PAGE))
        pytest.fail("it was cancelled")
    with trio.fail_after(5):
        await upstream.hung_up.wait()


async def test_a_page_that_fails_is_the_failure_of_the_call(bench, upstream, failure, book):
    book(([1], []), ({"message": "broken"}, [], 500))
    text, told = failure(await bench.call({}, **paged(PAGE)))
    assert "answered 500: broken" in text
    assert told["stage"] == "external_service"


async def test_a_retry_goes_on_at_the_page_that_failed(bench, upstream, book):
    book(([1], []), ({}, [], 503), ([2], []), ([], []))
    config = {"retry": {"max_attempts": 2, "backoff_ms": 1}}
    result = await bench.call({}, **paged(PAGE, execution_config=config))
    assert targets(upstream) == [f"/leads?page={n}" for n in (1, 2, 2, 3)]
    assert result.content[0].text == "[1,2]"


@pytest.mark.parametrize(
    ("pagination", "body"),
    [
        (LINK, {"a": 1}),
        ({**CURSOR, "items": "=body"}, "text"),
        (CURSOR, {"items": [1], "next": {"a": 1}}),
        (CURSOR, {"items": [1], "next": True}),
        ({**LINK, "items": "=body.d", "next": "=body.d"}, {"d": [1]}),
        ({**PAGE, "items": "=length(body)"}, 3),
    ],
)
async def test_a_page_that_is_not_as_the_operation_says_is_told_as_mapping(
    bench, upstream, failure, pagination, body
):
    upstream.says(body)
    text, told = failure(await bench.call({}, **paged(pagination)))
    assert told["stage"] == "mapping"
    assert "target.pagination." in text


async def test_a_cursor_without_end_is_refused(bench, upstream, failure):
    upstream.says({"items": [1], "next": "x" * 10_000})
    assert failure(await bench.call({}, **paged(CURSOR)))[1]["code"] == "pagination"


async def test_a_page_without_items_is_empty(bench, upstream, book):
    book(({"next": "b"}, []), ({"items": None, "next": None}, []))
    assert (await bench.call({}, **paged(CURSOR))).content[0].text == "[]"


BAD = [
    ({"by": "magic"}, "must be one of link, cursor, page, offset"),
    ({"by": "link", "url": "x"}, "unknown key 'url'"),
    ({**LINK, "parameter": "p"}, "'parameter' does not belong to pages by link"),
    ({**PAGE, "next": "=body"}, "'next' does not belong to pages by page"),
    ({**CURSOR, "more": "=body"}, "'more' does not belong to pages by cursor"),
    ({"by": "cursor", "parameter": "p"}, "pages by cursor need 'next'"),
    ({"by": "offset"}, "pages by offset need 'parameter'"),
    ({**PAGE, "max_pages": 0}, "must be an integer from 1 to 1000"),
    ({**PAGE, "parameter": "q"}, "must not be in input_mapping.query as well"),
    ({**LINK, "next": "=args.q"}, "there is no 'args' here"),
]


@pytest.mark.parametrize(("pagination", "says"), BAD, ids=[says for _, says in BAD])
def test_a_pagination_that_cannot_work_is_refused_when_compiled(make_bench, pagination, says):
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match=rf"target\.pagination.*{says}"):
        bench.compile(**paged(pagination, input_mapping={"query": {"q": "=args.q"}}))


def test_only_reading_has_pages_and_what_is_cut_must_be_told(make_bench):
    bench = make_bench("http://127.0.0.1:1")
    with pytest.raises(OperationError, match="only what is read with GET"):
        bench.compile(target={**PATH, "method": "POST", "pagination": PAGE}, input_mapping={})
    config = {"limits": {"on_exceed": "truncate"}}
    with pytest.raises(OperationError, match="must tell `complete`"):
        bench.compile(**paged(LINK, execution_config=config))


@pytest.mark.parametrize(
    ("header", "target"),
    [
        ("", None),
        ("<a>; rel=next", "a"),
        ("<a>; rel=prev, <b>; rel=next", "b"),
        ('<a>; rel="prev next"', "a"),
        ('<a,b>; title="x, <c>; rel=next"; rel=last, <d>;rel=NEXT', "d"),
        ("<a>; rel=nextish", None),
        ("<a>; xrel=next", None),
        ("<a>", None),
        ("a; rel=next", None),
        ("<a>; rel=", None),
    ],
)
def test_links_are_read_by_their_relation(header, target):
    assert next_link(header) == target


def test_no_link_header_is_slow_to_read():
    for evil in (
        "<a>" + "; " * 8000,
        "<a" * 8000,
        '<a>; x="' + "\\" * 15000,
        "<a>;x" + " " * 15000,
    ):
        began = time.process_time()
        next_link(evil)
        assert time.process_time() - began < 1.0
