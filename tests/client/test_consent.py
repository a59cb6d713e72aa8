"""Pages of somebody else: shown whole, opened only after a yes (F6)."""

import pytest
import trio

from mcp_trio import ClientCallbacks, ClientOptions, Context, MCPClient, MCPServer
from mcp_trio.client.consent import page_of, with_consent
from mcp_trio.errors import InvalidParamsError
from mcp_trio.wire.elicitation import ElicitParams
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.client.scripts import scripted

URL = "https://bank.example/connect?session=1&next=%2Fhome#top"


def asked(url, message="Log in"):
    return ElicitParams(message=message, mode="url", url=url)


def test_a_page_shows_all_of_its_url_and_its_host():
    page = page_of(asked(URL))
    assert (page.message, page.url, page.host, page.warnings) == ("Log in", URL, "bank.example", ())


@pytest.mark.parametrize(
    ("url", "host", "warning"),
    [
        ("http://bank.example/", "bank.example", "not https"),
        ("https://b\u0430nk.example/", "xn--bnk-6cd.example", "alphabets"),
        ("https://www.xn--bnk-6cd.example/", "www.xn--bnk-6cd.example", "alphabets"),
        ("https://bank.example@evil.example/", "evil.example", "@"),
    ],
)
def test_what_is_suspicious_is_said(url, host, warning):
    page = page_of(asked(url))
    assert page.host == host
    (said,) = page.warnings
    assert warning in said


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "bank.example",
        "https://",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://[bank.example/",
        "https://bank.example/\u202egnp.exe",
        "https://bank.example/\nHost: evil",
        "https://" + "a" * 64 + ".example",
    ],
)
def test_what_is_no_page_of_the_web_is_refused(url):
    with pytest.raises(InvalidParamsError):
        page_of(asked(url))


@pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("answer", "action"), [(True, "accept"), (False, "decline")])
async def test_a_page_is_opened_after_a_yes_and_only_then(revision, asynchronous, answer, action):
    server, seen = MCPServer("s"), []

    @server.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in", URL)).action

    async def later(value):
        await trio.lowlevel.checkpoint()
        return value

    def ask(page):
        seen.append(page.url)
        return later(answer) if asynchronous else answer

    def open_page(url):
        seen.append(f"opened {url}")
        return later(None) if asynchronous else None

    callbacks = ClientCallbacks(elicitation_url=with_consent(ask, open_page))
    options = ClientOptions(revisions=(revision,))
    async with MCPClient(server, callbacks=callbacks, options=options) as client:
        assert (await client.call_tool("visit")).content[0].text == action
    assert seen == [URL, f"opened {URL}"][: 2 if answer else 1]


async def test_no_callback_is_handed_what_is_no_page():
    def never(_params):
        raise AssertionError("asked")

    question = {"method": "elicitation/create", "params": {"message": "m", "mode": "url"}}
    question["params"]["url"] = "file:///etc/passwd"
    answers = {
        "tools/call": {"resultType": "input_required", "inputRequests": {"q": question}},
    }
    callbacks = ClientCallbacks(elicitation_url=never)
    async with scripted(answers, callbacks=callbacks) as (client, script):
        with pytest.raises(InvalidParamsError, match="not on the web"):
            await client.call_tool("x")
        assert script.count("tools/call") == 1
