"""Our client on the server for files, of npm: a program that works where the client's roots are.

It speaks the handshake era only, and has no HTTP.
"""

import base64
import json

import pytest
import trio

from mcp_trio.errors import ProtocolError, RemoteError, TransportError, VersionMismatchError
from mcp_trio.wire import AudioContent, EmbeddedResource, ImageContent
from mcp_trio.wire.roots import Root
from tests.interop.our_server import PIXEL, SILENCE
from tests.interop.their_servers import (
    HANDSHAKE,
    STATELESS,
    User,
    children,
    failure,
    members,
    reached,
    text,
)

pytestmark = pytest.mark.interop

SCRIPT = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
READERS = [
    "read_file",
    "read_text_file",
    "read_media_file",
    "read_multiple_files",
    "list_directory",
    "list_directory_with_sizes",
    "directory_tree",
    "search_files",
    "get_file_info",
    "list_allowed_directories",
]
WRITERS = ["write_file", "edit_file", "create_directory", "move_file"]


@pytest.fixture
def folder(tmp_path):
    """A folder with some files, to which the server is admitted."""
    place = tmp_path / "shared"
    (place / "deep" / "er").mkdir(parents=True)
    (place / "poem.txt").write_text("first\nsecond\nthird\n")
    (place / "deep" / "er" / "süß.md").write_text("# süß\n")
    (place / "pixel.png").write_bytes(PIXEL)
    (place / "still.wav").write_bytes(SILENCE)
    (place / "raw.bin").write_bytes(bytes(range(256)))
    return place


@pytest.fixture
async def files(servers, folder):
    async with reached([*servers.command(SCRIPT), str(folder)], "stdio") as server:
        yield server


async def test_it_speaks_the_handshake_era_and_tells_of_itself(files):
    async with files.connected() as client:
        assert client.revision == HANDSHAKE[0]
        assert client.server_info.name == "secure-filesystem-server"
        assert client.capabilities.tools == {"listChanged": True}
        assert client.capabilities.resources is None
        tools = [tool async for tool in client.tools()]
        with pytest.raises(RemoteError) as refused:
            await client.list_resources()

    reading = [tool.name for tool in tools if tool.annotations.read_only_hint]
    assert sorted(reading) == sorted(READERS)
    assert sorted(tool.name for tool in tools) == sorted([*READERS, *WRITERS])
    assert refused.value.rpc_code == -32601


async def test_it_speaks_no_stateless_revision(files):
    with pytest.raises(VersionMismatchError):
        async with files.connected(revisions=STATELESS):
            pass


async def test_files_are_read_in_every_way(files, folder):
    async with files.connected() as client:
        assert len([tool async for tool in client.tools()]) == 14  # so that outputs are checked

        async def call(name, **arguments):
            return await client.call_tool(name, arguments)

        poem = str(folder / "poem.txt")
        whole = await call("read_text_file", path=poem)
        assert text(whole) == "first\nsecond\nthird\n"
        assert whole.structured_content == {"content": "first\nsecond\nthird\n"}
        assert text(await call("read_file", path=poem)) == text(whole)
        assert text(await call("read_text_file", path=poem, head=2)) == "first\nsecond"
        assert text(await call("read_text_file", path=poem, tail=2)).strip() == "third"
        sweet = str(folder / "deep" / "er" / "süß.md")
        assert text(await call("read_text_file", path=sweet)) == "# süß\n"
        both = text(await call("read_multiple_files", paths=[poem, str(folder / "gone")]))
        assert both.startswith(f"{poem}:\nfirst\n")
        assert "gone: Error - " in both

        (image,) = (await call("read_media_file", path=str(folder / "pixel.png"))).content
        assert isinstance(image, ImageContent)
        assert base64.b64decode(image.data) == PIXEL
        (sound,) = (await call("read_media_file", path=str(folder / "still.wav"))).content
        assert isinstance(sound, AudioContent)
        assert (base64.b64decode(sound.data), sound.mime_type) == (SILENCE, "audio/wav")
        (raw,) = (await call("read_media_file", path=str(folder / "raw.bin"))).content
        assert isinstance(raw, EmbeddedResource)
        assert base64.b64decode(raw.resource.blob) == bytes(range(256))
        assert raw.resource.uri == (folder / "raw.bin").as_uri()

        listed = text(await call("list_directory", path=str(folder))).splitlines()
        assert {"[DIR] deep", "[FILE] poem.txt"} <= set(listed)
        sizes = text(await call("list_directory_with_sizes", path=str(folder), sortBy="size"))
        assert "Total: 4 files, 1 directories" in sizes
        tree = json.loads(text(await call("directory_tree", path=str(folder / "deep"))))
        assert tree == [
            {"name": "er", "type": "directory", "children": [{"name": "süß.md", "type": "file"}]}
        ]
        found = text(await call("search_files", path=str(folder), pattern="**/*.md"))
        assert found == sweet
        assert "size: 19" in text(await call("get_file_info", path=poem))
        assert str(folder) in text(await call("list_allowed_directories"))


async def test_files_are_written_edited_and_moved(files, folder):
    async with files.connected() as client:

        async def call(name, **arguments):
            return text(await client.call_tool(name, arguments))

        new = folder / "new" / "dir" / "note.txt"
        await call("create_directory", path=str(new.parent))
        await call("write_file", path=str(new), content="um\r\nzwei\n💡\n")
        assert new.read_bytes() == "um\r\nzwei\n💡\n".encode()
        edits = [{"oldText": "zwei", "newText": "drei"}]
        difference = await call("edit_file", path=str(new), edits=edits, dryRun=True)
        assert "-zwei\n+drei" in difference
        assert "zwei" in new.read_text()
        await call("edit_file", path=str(new), edits=edits)
        assert "drei" in new.read_text()
        moved = folder / "moved.txt"
        await call("move_file", source=str(new), destination=str(moved))
        assert moved.exists()
        assert not new.exists()


@pytest.mark.parametrize("megabytes", [1, 9])
async def test_a_big_file_goes_there_and_back(servers, folder, megabytes):
    line = 'all work and no play makes jack a dull boy, 日本語 😀 \\ " \t\n'
    content = line * (megabytes * 1024 * 1024 // len(line.encode()))
    big = folder / "big.txt"
    command = [*servers.command(SCRIPT), str(folder)]
    # The answer holds the text twice.
    async with reached(command, "stdio", max_line=32 * 1024 * 1024) as server:
        async with server.connected() as client:
            written = {"path": str(big), "content": content}
            assert "Successfully wrote" in text(await client.call_tool("write_file", written))
            assert big.read_text() == content
            read = await client.call_tool("read_text_file", {"path": str(big)})
    assert text(read) == content


async def test_a_message_that_the_program_does_not_take_fails_that_call(files, folder):
    # Its SDK reads messages of 10 MB at most, and gives the line up after a longer one.
    async with files.connected() as client:
        written = {"path": str(folder / "big.txt"), "content": "x" * (11 * 1024 * 1024)}
        with pytest.raises(TransportError):
            await client.call_tool("write_file", written)
    assert not (folder / "big.txt").exists()


async def test_an_answer_that_is_too_long_for_us_fails_that_call_only(servers, folder):
    (folder / "big.txt").write_text("x" * 200_000)
    command = [*servers.command(SCRIPT), str(folder)]
    async with reached(command, "stdio", max_line=100_000) as server:
        async with server.connected() as client:
            with pytest.raises(ProtocolError, match="longer than 100000 bytes"):
                await client.call_tool("read_text_file", {"path": str(folder / "big.txt")})
            poem = await client.call_tool("read_text_file", {"path": str(folder / "poem.txt")})
    assert text(poem).startswith("first")


async def test_places_outside_are_refused(files, folder, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("hush")
    (folder / "way-out").symlink_to(secret)
    async with files.connected() as client:
        for path in (secret, folder / ".." / "secret.txt", folder / "way-out"):
            said = failure(await client.call_tool("read_text_file", {"path": str(path)}))
            assert "Access denied" in said
        written = {"path": str(tmp_path / "new.txt"), "content": "x"}
        assert "Access denied" in failure(await client.call_tool("write_file", written))
        assert "ENOENT" in failure(
            await client.call_tool("read_text_file", {"path": str(folder / "gone.txt")})
        )
        assert "expected string" in failure(await client.call_tool("read_text_file", {"path": 7}))
        assert "not found" in failure(await client.call_tool("format_disk"))
    assert not (tmp_path / "new.txt").exists()


async def test_the_roots_of_the_client_are_where_it_works(servers, tmp_path):
    places = [tmp_path / name for name in ("first", "with space é", "third")]
    for place in places:
        place.mkdir()
        (place / "here.txt").write_text(place.name)
    user = User()
    user.roots = [Root(uri=place.as_uri(), name=place.name) for place in places[:2]]
    told = trio.Event()

    def note(line):
        if "Updated allowed directories from MCP roots: 1" in line:
            told.set()

    async with reached(servers.command(SCRIPT), "stdio", stderr=note) as server:
        async with server.connected(user, ["roots"]) as client:

            async def read(place):
                return await client.call_tool("read_text_file", {"path": str(place / "here.txt")})

            await user.wait_for(lambda: user.asked)
            # It asks once it hears that the handshake is over, and so before it hears of this.
            while "first" not in text(await client.call_tool("list_allowed_directories")):
                await trio.lowlevel.checkpoint()
            assert [text(await read(place)) for place in places[:2]] == ["first", "with space é"]
            assert "Access denied" in failure(await read(places[2]))

            user.roots = [Root(uri=places[2].as_uri())]
            await client.notify_roots_changed()
            await told.wait()
            assert text(await read(places[2])) == "third"
            assert "Access denied" in failure(await read(places[0]))
    assert user.asked == [("roots", None), ("roots", None)]


async def test_without_roots_and_folders_it_works_nowhere(servers, folder):
    async with reached(servers.command(SCRIPT), "stdio") as server:
        async with server.connected() as client:
            said = text(await client.call_tool("list_allowed_directories"))
            poem = {"path": str(folder / "poem.txt")}
            denied = failure(await client.call_tool("read_text_file", poem))
    assert said.strip() == "Allowed directories:"
    assert "Access denied" in denied


async def test_nothing_is_left_of_the_program(files):
    before = children()
    async with files.connected() as client:
        (pid,) = children() - before
        await client.ping()
    assert members(pid) == set()
    assert children() == before
