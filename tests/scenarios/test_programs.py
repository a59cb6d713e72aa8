"""A client and a server that is a program of its own: how it is opened, dies and comes back."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio

from mcp_trio import ClientOptions, Command, EraCache, MCPClient
from mcp_trio.errors import TransportError
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28

PROGRAM = Path(__file__).with_name("program.py")
PROBE = ["server/discover"]
HANDSHAKE = ["initialize", "notifications/initialized"]


class Journal:
    """What the program has written down: its starts, and the methods that it heard."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        return iter(self.path.read_text().split("\n")[:-1])

    def __eq__(self, other):
        assert list(self) == other
        return True

    __hash__ = None


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


@pytest.fixture
def command(journal):
    """Make the command of a program that behaves in these ways."""

    def make(*ways, **settings):
        # Isolated and without site packages, because that starts fast.
        arguments = [sys.executable, "-I", "-S", PROGRAM, journal.path, *ways]
        return Command(arguments, **{"stderr": "drop", "grace": 10.0, **settings})

    return make


async def pid_of(client):
    return int((await client.call_tool("pid")).content[0].text)


def is_gone(pid):
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    return True


# -- opening ---------------------------------------------------------------------------


async def test_a_list_is_a_command(command, journal):
    async with MCPClient(list(command("stateless").arguments)) as client:
        assert client.revision is R2026_07_28
        assert client.server_info.name == "program"
        pid = await pid_of(client)
    assert is_gone(pid)
    assert journal == ["start", *PROBE, "tools/call"]


async def test_a_program_that_does_not_know_the_question_is_opened_by_handshake(command, journal):
    async with MCPClient(command()) as client:
        assert client.revision is R2025_11_25
    assert journal == ["start", *PROBE, *HANDSHAKE]


async def test_a_program_that_dies_of_the_question_is_started_anew_and_not_asked(command, journal):
    async with MCPClient(command("dies")) as client:
        assert client.revision is R2025_11_25
        await pid_of(client)
    assert journal == ["start", *PROBE, "start", *HANDSHAKE, "tools/call"]


async def test_what_is_known_of_a_program_spares_it_the_question(command, journal):
    eras = EraCache()
    for _ in range(2):
        async with MCPClient(command("dies"), options=ClientOptions(eras=eras)) as client:
            assert client.revision is R2025_11_25
    assert journal == ["start", *PROBE, *["start", *HANDSHAKE] * 2]


async def test_a_program_that_has_learned_more_since_is_asked_again(command, journal):
    options = ClientOptions(eras=EraCache())
    async with MCPClient(command(), options=options):
        pass
    journal.path.write_text("")
    async with MCPClient(command(env={"WAYS": "stateless"}), options=options) as client:
        assert client.revision is R2026_07_28
    assert journal == ["start", "initialize", "start", *PROBE]


async def test_silence_ends_with_the_time_for_it(command, journal):
    options = ClientOptions(probe_timeout=0.3)
    async with MCPClient(command("silent"), options=options) as client:
        assert client.revision is R2025_11_25
    assert journal == ["start", *PROBE, "notifications/cancelled", *HANDSHAKE]


async def test_a_program_that_cannot_live_says_why_and_is_not_tried_for_ever(command, journal):
    with pytest.raises(TransportError) as caught:
        async with MCPClient(command("dead", restarts=5)):
            raise AssertionError("connected to nothing")
    assert caught.value.message == "python has ended with exit status 5; it said:\ncannot start"
    assert journal == ["start", "start"]


async def test_a_program_that_is_none_is_a_plain_error():
    with pytest.raises(TransportError, match="cannot start /no/such"):
        async with MCPClient(["/no/such"]):
            raise AssertionError("connected to nothing")


# -- noise -----------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_what_it_prints_between_messages_is_skipped_and_reported(command, journal, era):
    noise = []
    async with MCPClient(command("noise", era, on_noise=noise.append)) as client:
        await pid_of(client)
    assert noise[:4] == ["\ufffd\ufffd", "Listening...", '{"level": "info"}', "[]"]
    assert "an answer" not in list(journal)


# -- dying and coming back -------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("die", "python has ended with exit status 7; it said:\nno more"),
        ("kill", "python was ended by signal 9 (Killed)"),
    ],
)
async def test_a_call_it_dies_in_and_every_later_one_say_how_it_ended(command, how, told):
    async with MCPClient(command("stateless")) as client:
        for name in (how, "pid"):
            with pytest.raises(TransportError) as caught:
                await client.call_tool(name)
            assert caught.value.message == told


@pytest.mark.parametrize("era", ["stateless", "dies"])
async def test_it_is_started_again_and_the_call_it_died_in_is_not_repeated(command, journal, era):
    async with MCPClient(command(era, restarts=2)) as client:
        before = await pid_of(client)
        with pytest.raises(TransportError, match="exit status 7"):
            await client.call_tool("die")
        after = await pid_of(client)
        assert before != after
    assert is_gone(before)
    assert is_gone(after)
    heard = Counter(journal)
    assert heard["tools/call"] == 3
    # The program that dies of the question is not asked again.
    assert (heard["start"], heard["server/discover"]) == {"stateless": (2, 2), "dies": (3, 1)}[era]


async def test_what_was_listened_to_is_listened_to_again(command, journal):
    async with MCPClient(command("stateless", restarts=1)) as client, client.listen() as changes:
        with pytest.raises(TransportError):
            await client.call_tool("die")
        await pid_of(client)
        with trio.fail_after(10):
            while list(journal).count("subscriptions/listen") < 2:
                await pid_of(client)
            await client.call_tool("change")
            assert await anext(changes) == "notifications/tools/list_changed"


async def test_what_was_watched_is_watched_again(command, journal):
    uri = "file:///watched"
    async with MCPClient(command(restarts=1)) as client, client.listen(resource=uri) as changes:
        with pytest.raises(TransportError):
            await client.call_tool("die")
        await client.call_tool("change")
        with trio.fail_after(10):
            assert await anext(changes) == f"notifications/resources/updated {uri}"
    heard = list(journal)
    assert heard.count("resources/subscribe") == 2
    again = heard.index("start", 1)
    assert heard[again:][:4] == ["start", *HANDSHAKE, "resources/subscribe"]


async def test_a_program_that_dies_too_often_stays_dead(command, journal, autojump_clock):
    autojump_clock.autojump_threshold = 0.5  # the program lives on the clock of the wall
    async with MCPClient(command("stateless", "once", restarts=2)) as client:
        async with client.listen() as changes:
            for name in ("die", "pid"):
                with pytest.raises(TransportError, match="exit status 7"):
                    await client.call_tool(name)
            with pytest.raises(TransportError, match="exit status 7"):
                await anext(changes)
    assert list(journal).count("start") <= 1 + 2 * 2


async def test_leaving_while_it_is_being_started_again_leaves_nothing(command):
    with trio.fail_after(10):
        async with MCPClient(command("stateless", restarts=9)) as client:
            with pytest.raises(TransportError):
                await client.call_tool("die")
