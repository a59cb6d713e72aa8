"""The official Python and TypeScript clients against our server: every method, in both eras.

One session of each client over each transport and in each era tries everything; the drivers
`peer_client.py` and `node/client.mjs` report it in the same form, and each test looks at one
section of the reports.
"""

import base64
import itertools

import attrs
import pytest

from tests.interop.conftest import reachable, run_session
from tests.interop.offered import (
    ADD,
    GREET,
    GREETING,
    HANDSHAKE,
    PAGES,
    PICTURE,
    STATELESS,
    text_of,
)
from tests.interop.our_server import PERSON, PIXEL, SILENCE

pytestmark = pytest.mark.interop

SECTIONS = (
    "opening",
    "mirroring",
    "listing",
    "calling",
    "reading",
    "watching",
    "prompting",
    "completing",
    "logging",
    "asking",
    "changing",
)


@attrs.frozen
class Talk:
    """One session: who talks over what, and how the client is told to find the era."""

    client: str
    transport: str
    mode: str

    def __str__(self):
        eras = {"legacy": "handshake", STATELESS: "stateless", "auto": "probing"}
        return f"{self.client}-{self.transport}-{eras[self.mode]}"

    @property
    def sections(self):
        """Whatever the era, a client that found it by itself goes on like one that was told."""
        return SECTIONS[:1] if self.mode == "auto" else SECTIONS


CLIENTS, TRANSPORTS = ("python", "typescript"), ("http", "stdio")
TALKS = [Talk(*each) for each in itertools.product(CLIENTS, TRANSPORTS, ("legacy", STATELESS))]
PROBES = [Talk(*each) for each in itertools.product(CLIENTS, TRANSPORTS, ("auto",))]


@attrs.frozen
class Report:
    """What a client saw in one session."""

    talk: Talk
    seen: dict

    @property
    def stateless(self):
        return self.talk.mode != "legacy"

    def __getitem__(self, section):
        """What it saw in one section."""
        found = self.seen[section]
        assert "fault" not in found, found["fault"]
        return found


@pytest.fixture(scope="session")
def reports():
    """What was seen in the sessions so far, None if a session failed."""
    return {}


@pytest.fixture
async def report(request, drivers, reports):
    """The report of a session, which is run when it is first asked for."""
    talk = request.param
    if talk not in reports:
        reports[talk] = None
        task = {"mode": talk.mode, "sections": talk.sections}
        async with (
            reachable(talk.transport) as where,
            run_session(drivers[talk.client], **task, **where) as seen,
        ):
            reports[talk] = seen
    assert reports[talk] is not None, "the session has failed, as an earlier test told"
    return Report(talk, reports[talk])


everywhere = pytest.mark.parametrize("report", TALKS, indirect=True, ids=str)


@pytest.mark.parametrize("report", [*TALKS, *PROBES], indirect=True, ids=str)
async def test_the_client_learns_who_it_talks_to(report):
    seen = report["opening"]
    assert seen["protocol"] == (STATELESS if report.stateless else HANDSHAKE)
    assert seen["server"] == {"name": "interop", "title": "Interop", "version": "1.0.0"}
    assert seen["instructions"] == "Try everything."
    assert seen["capabilities"] == {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "completions": {},
        "logging": {},
    }
    if report.stateless:
        assert seen["supported"][:2] == [STATELESS, HANDSHAKE]
    else:
        assert seen["ping"] == {}


@everywhere
@pytest.mark.parametrize("kind", PAGES)
async def test_a_list_is_walked_page_by_page(report, kind):
    seen = report["listing"][kind]
    assert [[item["name"] for item in page] for page in seen["pages"]] == PAGES[kind]
    assert seen["stray"]["code"] == -32602


@everywhere
@pytest.mark.parametrize(
    ("kind", "entry"),
    [("tools", ADD), ("prompts", GREET), ("resources", PICTURE), ("resourceTemplates", GREETING)],
    ids=PAGES,
)
async def test_an_entry_of_a_list_arrives_whole(report, kind, entry):
    entries = [item for page in report["listing"][kind]["pages"] for item in page]
    assert entry in entries


@everywhere
async def test_a_tool_answers_with_structured_content(report):
    seen = report["calling"]
    assert text_of(seen["add"]) == "42"
    assert seen["add"]["structuredContent"] == {"result": 42}


@everywhere
async def test_content_of_every_kind_arrives(report):
    text, image, audio, embedded, link = report["calling"]["show"]["content"]
    assert text == {"type": "text", "text": "all kinds"}
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(image["data"]) == PIXEL
    assert (audio["type"], audio["mimeType"]) == ("audio", "audio/wav")
    assert base64.b64decode(audio["data"]) == SILENCE
    assert embedded == {
        "type": "resource",
        "resource": {"uri": "interop://inside", "mimeType": "text/plain", "text": "inside"},
    }
    assert link == {
        "type": "resource_link",
        "uri": "interop://text",
        "name": "text",
        "mimeType": "text/plain",
    }


@everywhere
async def test_what_goes_wrong_in_a_call_is_told(report):
    seen = report["calling"]
    assert seen["bad_arguments"]["isError"] is True
    assert "/a" in seen["bad_arguments"]["content"][0]["text"]
    assert seen["refuse"]["isError"] is True
    assert seen["refuse"]["content"] == [{"type": "text", "text": "this tool never works"}]
    assert seen["unknown"]["code"] == -32602
    assert "nothing" in seen["unknown"]["message"]


@everywhere
async def test_progress_is_heard_while_the_call_runs(report):
    # The call is not answered until the client has said that it heard the last step.
    assert text_of(report["calling"]["count"]) == "counted to 3"
    assert report["calling"]["progress"] == [[step, 3, f"step {step}"] for step in (1, 2, 3)]


@everywhere
async def test_a_call_that_is_given_up_is_cancelled(report):
    assert report["calling"]["began"]["structuredContent"] == {"result": True}
    assert report["calling"]["ended"]["structuredContent"] == {"result": True}


@everywhere
async def test_arguments_that_travel_in_headers_arrive(report):
    seen = report["mirroring"]
    # The tool had not been listed yet: the client could not know about the header.
    assert text_of(seen["early"]) == "region: north"
    regions = ["süd", " east ", "=?base64?d2VzdA==?="]
    assert [text_of(result) for result in seen["regions"]] == [f"region: {r}" for r in regions]


@everywhere
async def test_resources_of_every_kind_are_read(report):
    seen = report["reading"]["there"]
    assert seen["pixel"] == [
        {
            "uri": "interop://pixel",
            "mimeType": "image/png",
            "blob": base64.b64encode(PIXEL).decode(),
        }
    ]
    assert {name: contents[0].get("text") for name, contents in seen.items()} == {
        "text": "plain and simple",
        "pixel": None,
        "people": '["ada","alan","grace"]',
        "people/ada": "This is ada.",
        "squares/12": "144",
        "files/a/b": "a/b",
        "search?words=x": "x",
    }
    assert seen["people"][0]["mimeType"] == "application/json"


@everywhere
@pytest.mark.parametrize("name", ["nothing", "people/bob", "squares/many"])
async def test_a_missing_resource_has_the_code_of_the_era(report, name):
    assert report["reading"]["missing"][name]["code"] == (-32602 if report.stateless else -32002)


@everywhere
async def test_each_change_of_a_watched_resource_is_heard_once(report):
    seen = report["watching"]
    watched, other = "interop://watched", "interop://other"
    # The first one changed once more, when nobody watched it any longer.
    assert seen["heard"] == [watched, other, other]
    assert (seen["before"], seen["after"]) == ("touched 0 times", "touched 1 times")
    if report.stateless:
        wishes = [wish["resourceSubscriptions"] for wish in seen["honoured"]]
        assert wishes == [[watched, other], [other]]
    else:
        assert seen["nothing"]["code"] == -32002


@everywhere
async def test_prompts_are_filled_in(report):
    seen = report["prompting"]
    assert seen["greet"]["description"] == "Greet somebody."
    for name, text in [("greet", "a formal greeting"), ("defaults", "a friendly greeting")]:
        block = {"type": "text", "text": f"Give Ada {text}."}
        assert seen[name]["messages"] == [{"role": "user", "content": block}]

    talk = seen["dialogue"]["messages"]
    assert [message["role"] for message in talk] == ["user", "user", "assistant"]
    assert [message["content"]["type"] for message in talk] == ["text", "image", "text"]
    (cited,) = seen["cite"]["messages"]
    assert cited["content"]["resource"] == {"uri": "interop://text", "text": "cited"}


@everywhere
@pytest.mark.parametrize("case", ["unknown", "incomplete", "unfit"])
async def test_a_prompt_that_cannot_be_filled_in_is_refused(report, case):
    assert report["prompting"][case]["code"] == -32602


@everywhere
async def test_arguments_are_completed(report):
    seen = report["completing"]
    assert seen["prompt"] == {"values": ["ada", "alan"], "total": 2, "hasMore": False}
    assert seen["template"]["values"] == ["friendly", "formal", "frank"]
    # Other arguments are known already, and count.
    assert seen["knowing"]["values"] == ["friendly", "frank"]
    assert seen["nobody"]["values"] == []
    assert seen["unknown"]["code"] == -32602


@everywhere
async def test_the_log_is_heard_from_the_level_that_was_asked_for(report):
    debug = {"level": "debug", "data": "whispered"}
    warning = {"level": "warning", "data": "said", "logger": "interop.speak"}
    error = {"level": "error", "data": {"how": "shouted"}}
    assert report["logging"]["asked"] == [debug, warning, error, error]
    # Without a wish the stateless era keeps silent, and a session hears from warnings on.
    assert report["logging"]["unasked"] == ([] if report.stateless else [warning, error])


@everywhere
async def test_tools_ask_the_user_the_model_and_for_roots(report):
    seen = report["asking"]
    ada = {"name": "Ada", "age": 36}
    assert seen["form"]["structuredContent"] == {"action": "accept", "content": ada}
    assert seen["declined"]["structuredContent"] == {"action": "decline", "content": None}
    assert seen["page"]["structuredContent"] == {"action": "accept"}
    assert text_of(seen["model"]) == "parrot (assistant): Hello."
    assert seen["roots"]["structuredContent"] == {"result": ["home: file:///home/ada"]}
    assert seen["all"]["structuredContent"] == {
        "user": ada,
        "model": "Hello.",
        "roots": 1,
        "again": "decline",
    }


@everywhere
async def test_a_prompt_asks_the_user(report):
    (message,) = report["asking"]["prompt"]["messages"]
    assert message["content"] == {"type": "text", "text": "I am Ada."}


@everywhere
async def test_questions_arrive_as_they_were_put(report):
    form, declined, page, model, roots = report["asking"]["asked"]
    assert form == {"mode": "form", "message": "Who are you?", "requestedSchema": PERSON}
    assert declined["message"] == "Please decline"
    assert (page["mode"], page["url"]) == ("url", "https://example.com/sign-in")
    assert model["systemPrompt"] == "Be brief."
    assert (model["maxTokens"], model["temperature"]) == (20, 0.5)
    (said,) = model["messages"]
    assert said["content"] == {"type": "text", "text": "Say hello"}
    assert roots == {}

    if not report.stateless:  # only there has a visit a name, and can be said to be over
        assert page["elicitationId"] == "visit-1"
        assert report["asking"]["completed"] == [{"elicitationId": "visit-1"}]


@everywhere
async def test_each_change_of_a_list_is_heard_once_and_shows_in_it(report):
    seen = report["changing"]
    kinds = ("tools", "prompts", "resources")
    assert seen["heard"] == [f"notifications/{kind}/list_changed" for kind in kinds]
    assert seen["last"] == dict.fromkeys(kinds, "grown")
    if report.stateless:
        assert seen["honoured"] == [{f"{kind}ListChanged": True for kind in kinds}]
