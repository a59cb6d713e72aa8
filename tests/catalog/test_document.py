"""Documents as registries: real files, written in every way people write files."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from mcp_trio.abc import RegistryError, Trouble
from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.catalog.registries import document as module
from mcp_trio.catalog.registries.document import DocumentRegistry
from mcp_trio.catalog.registries.rows import MAX_VIEW_BYTES
from mcp_trio.testing import check_registry
from tests.descriptors import open_files

FORMAT = "mcp-operations/1"


def document(*views, **extra):
    return json.dumps({"format": FORMAT, "operations": list(views), **extra}, ensure_ascii=False)


def replace(path, text):
    """Write as a careful program does: beside it, then rename over it."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(text if isinstance(text, bytes) else text.encode())
    beside.replace(path)


def ids(reading):
    return sorted(entry.operation_id for entry in reading.entries)


def faults(reading):
    return {e.operation_id: e.fault for e in reading.entries if e.fault is not None}


def texts(reading):
    return {e.operation_id: e.view["tool_description"] for e in reading.entries if e.view}


class Clock:
    """The time of the file system, and how far ahead of it we say we are."""

    def __init__(self):
        self.ahead = 0

    def __call__(self):
        return module.time.time_ns() + self.ahead * 1_000_000_000


@pytest.fixture
def clock():
    return Clock()


class OneDocument:
    def __init__(self, folder):
        self.path = folder / "operations.json"
        self.views = {}
        self.write()
        self.registry = DocumentRegistry(self.path)

    def write(self):
        replace(self.path, document(*self.views.values()))

    async def publish(self, *views):
        self.views.update({view["operation_id"]: view for view in views})
        self.write()
        await trio.lowlevel.checkpoint()

    async def withdraw(self, *operation_ids):
        for operation_id in operation_ids:
            self.views.pop(operation_id, None)
        self.write()
        await trio.lowlevel.checkpoint()

    async def hide(self):
        self.path.rename(self.path.with_suffix(".hidden"))

    async def show(self):
        self.path.with_suffix(".hidden").rename(self.path)


class EditedInPlace(OneDocument):
    def write(self):
        self.path.write_text(document(*self.views.values()))


class OneFileEach(OneDocument):
    def write(self):
        folder = self.path = self.path.with_suffix("")
        folder.mkdir(exist_ok=True)
        names = {f"{i.encode().hex()}.json": view for i, view in self.views.items()}
        for name, view in names.items():
            replace(folder / name, json.dumps(view))
        for path in folder.glob("*.json"):
            if path.name not in names:
                path.unlink()


class MountedMap(OneDocument):
    """As a ConfigMap is mounted: links through `..data`, which is switched at once."""

    version = 0

    def write(self):
        folder = self.path = self.path.with_suffix("")
        folder.mkdir(exist_ok=True)
        self.version += 1
        target = folder / f"..version-{self.version}"
        target.mkdir()
        halves = list(self.views.values())[::2], list(self.views.values())[1::2]
        for name, views in zip(("one.json", "two.json"), halves, strict=True):
            (target / name).write_text(document(*views))
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(f"..data/{name}")
        (folder / "..new").symlink_to(target.name)
        (folder / "..new").replace(folder / "..data")


@pytest.mark.parametrize("kind", [OneDocument, EditedInPlace, OneFileEach, MountedMap])
async def test_it_passes_the_battery(tmp_path, kind):
    @asynccontextmanager
    async def make():
        with tempfile.TemporaryDirectory(dir=tmp_path) as place:
            yield kind(Path(place))

    await check_registry(make)


async def test_a_folder_may_hold_documents_and_single_operations(tmp_path, view):
    (tmp_path / "b.json").write_text(document(view("b"), view("c"), revision="2026-11"))
    (tmp_path / "a.json").write_text(json.dumps(view("a")))
    # What editors and others leave lying about.
    (tmp_path / ".hidden.json").write_text("{")
    (tmp_path / "a.json~").write_text("{")
    (tmp_path / "d.yaml").write_text("operation_id: d")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "e.json").write_text(json.dumps(view("e")))
    reading = await DocumentRegistry(tmp_path).read(None)
    assert ids(reading) == ["a", "b", "c"]
    assert faults(reading) == {}


async def test_the_mark_that_some_editors_begin_with_is_not_looked_at(tmp_path, view):
    (tmp_path / "a.json").write_text("\ufeff" + document(view("a")))
    (tmp_path / "b.json").write_text("\ufeff" + json.dumps(view("b")))
    reading = await DocumentRegistry(tmp_path).read(None)
    assert (ids(reading), faults(reading)) == (["a", "b"], {})


DEEP = "[" * 200_000
GOOD = '{"operation_id": "good"}'


@pytest.mark.parametrize(
    ("text", "trouble", "says"),
    [
        ("", Trouble.CORRUPT, "is not JSON"),
        ('{"format": "mcp-operations/1", "operations": [{"a', Trouble.CORRUPT, "is not JSON"),
        (document() + "x", Trouble.CORRUPT, "is not JSON"),
        ("operation_id: a\nname: b\n", Trouble.CORRUPT, "is not JSON"),
        (DEEP, Trouble.SCHEMA, "Expected `object`"),
        (f'{{"operations": {DEEP}', Trouble.CORRUPT, "is not JSON"),
        ("[]", Trouble.SCHEMA, "Expected `object`"),
        ('{"operations": []}', Trouble.SCHEMA, "misses 'format'"),
        ('{"format": "mcp-operations/1"}', Trouble.SCHEMA, "misses 'operations'"),
        (document(ui={}), Trouble.SCHEMA, "unknown key 'ui'"),
        (document(revision=3), Trouble.SCHEMA, "revision: must be a string"),
        ('{"format": "mcp-operations/2", "operations": []}', Trouble.SCHEMA, "format: must be"),
        ('{"format": "mcp-operations/1", "operations": {}}', Trouble.SCHEMA, "Expected `array`"),
        (b'{"format": "\xff", "operations": []}', Trouble.CORRUPT, "is not JSON"),
        (document({"operation_id": "a"}).replace("a", r"\ud800"), Trouble.CORRUPT, "is not JSON"),
    ],
)
async def test_a_document_that_is_none_is_refused_and_one_mended_is_read(
    tmp_path, view, text, trouble, says
):
    path = tmp_path / "operations.json"
    replace(path, text)
    registry = DocumentRegistry(path)
    for _ in range(2):
        with pytest.raises(RegistryError, match=says) as caught:
            await registry.read(None)
        assert caught.value.trouble is trouble
        assert str(path) in str(caught.value)
        with pytest.raises(RegistryError):
            await registry.change_token()
    replace(path, document(view("a")))
    assert ids(await registry.read(None)) == ["a"]


@pytest.mark.parametrize(
    ("text", "operation_id", "says"),
    [
        ("[1]", "#/operations/1", "must be an object"),
        ("null", "#/operations/1", "must be an object"),
        ('{"name": "a"}', "#/operations/1", "operation_id: must be a string"),
        ('{"operation_id": ""}', "#/operations/1", "operation_id: must be a string"),
        ('{"operation_id": 3}', "#/operations/1", "operation_id: must be a string"),
        (f'{{"operation_id": "{"a" * 201}"}}', "#/operations/1", "operation_id: must be a string"),
        (f'{{"operation_id": "a", "x": {"[" * 80}{"]" * 80}}}', "a", "nested more than 64 levels"),
        (f'{{"x": "{"y" * MAX_VIEW_BYTES}", "operation_id": "a"}}', "a", "larger than"),
        ('{"operation_id": "good"}', "good", "operation_id: appears more than once, in "),
    ],
)
async def test_an_operation_that_is_none_is_a_fault_of_its_own(tmp_path, text, operation_id, says):
    path = tmp_path / "operations.json"
    path.write_text(f'{{"format": "{FORMAT}", "operations": [{GOOD}, {text}]}}')
    reading = await DocumentRegistry(path).read(None)
    found = {e.operation_id.removeprefix(str(path)): e for e in reading.entries}
    assert says in found[operation_id].fault
    assert found[operation_id].view is None
    if operation_id != "good":
        assert found["good"].view == {"operation_id": "good"}


async def test_an_operation_in_two_files_is_a_fault_and_neither_wins(tmp_path, view):
    (tmp_path / "a.json").write_text(document(view("same"), view("a")))
    registry = DocumentRegistry(tmp_path)
    base = await registry.read(None)
    assert faults(base) == {}
    (tmp_path / "b.json").write_text(json.dumps(view("same", name="other")))
    reading = await registry.read(base.token)
    assert faults(reading) == {"same": "operation_id: appears more than once, in a.json, b.json"}
    assert ids(reading) == ["same"]
    # One of them goes: the other one is as good as before.
    (tmp_path / "a.json").write_text(document(view("a")))
    reading = await registry.read(reading.token)
    assert [e.view["name"] for e in reading.entries] == ["other"]
    (tmp_path / "b.json").unlink()
    assert (await registry.read(reading.token)).removed == ("same",)


async def test_a_broken_file_of_a_folder_keeps_its_last_good_content_and_is_reported(
    tmp_path, view
):
    for name in ("a", "b"):
        replace(tmp_path / f"{name}.json", document(view(name)))
    registry = DocumentRegistry(tmp_path)
    base = await registry.read(None)
    # Half of the file is written, and the writer takes its time.
    (tmp_path / "a.json").write_text(document(view("a", tool_description="New."))[:60])
    replace(tmp_path / "b.json", document(view("b", tool_description="New.")))
    reading = await registry.read(base.token)
    assert texts(reading) == {"b": "New."}
    [(reported, says)] = faults(reading).items()
    assert reported == "file:a.json"
    assert says.startswith("a.json is not JSON")
    assert reading.removed == ()
    again = await registry.read(reading.token)
    assert (again.token, again.entries) == (reading.token, ())
    (tmp_path / "a.json").write_text(document(view("a", tool_description="New.")))
    mended = await registry.read(reading.token)
    assert texts(mended) == {"a": "New."}
    assert mended.removed == ("file:a.json",)


async def test_the_catalog_serves_on_while_a_file_is_broken(tmp_path, view, compiler, host):
    replace(tmp_path / "a.json", document(view("a")))
    replace(tmp_path / "b.json", document(view("b")))
    actor = CatalogActor(DocumentRegistry(tmp_path), compiler)
    actor.bind(host)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await actor.ready.wait()
        (tmp_path / "a.json").write_text("{")
        status = await actor.refresh()
        assert sorted(actor.tools.entries) == ["a", "b"]
        [record] = status.quarantine
        assert (record.operation_id, record.serving) == ("file:a.json", None)
        assert status.last_error is None
        nursery.cancel_scope.cancel()


async def test_a_single_document_that_breaks_is_an_outage_with_the_last_good_kept(
    tmp_path, view, compiler, host
):
    path = tmp_path / "operations.json"
    replace(path, document(view("a")))
    actor = CatalogActor(DocumentRegistry(path), compiler)
    actor.bind(host)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await actor.ready.wait()
        path.write_text('{"format": "mcp-oper')
        status = await actor.refresh()
        assert "is not JSON" in status.last_error
        assert list(actor.tools.entries) == ["a"]
        path.write_text(document(view("a"), view("b")))
        status = await actor.refresh()
        assert status.last_error is None
        assert list(actor.tools.entries) == ["a", "b"]
        nursery.cancel_scope.cancel()


@pytest.fixture
def work(monkeypatch):
    """Counts the files that are read, and those that are taken apart."""
    done = {"read": [], "parsed": []}
    content, parse = DocumentRegistry._content, module.read_document

    def counted_content(self, path, shown):
        done["read"].append(path.name)
        return content(self, path, shown)

    def counted_parse(data, name, known):
        done["parsed"].append(name)
        return parse(data, name, known)

    monkeypatch.setattr(DocumentRegistry, "_content", counted_content)
    monkeypatch.setattr(module, "read_document", counted_parse)
    return done


async def test_only_what_changed_is_read_and_taken_apart(tmp_path, view, clock, work):
    for name in "abc":
        replace(tmp_path / f"{name}.json", document(view(name)))
    registry = DocumentRegistry(tmp_path, clock=clock)
    base = await registry.read(None)
    assert work["parsed"] == ["a.json", "b.json", "c.json"]
    work["read"].clear()
    work["parsed"].clear()
    # Just written: the times cannot be trusted yet, the content can.
    assert await registry.change_token() == base.token
    assert (work["read"], work["parsed"]) == (["a.json", "b.json", "c.json"], [])
    clock.ahead = 10
    assert await registry.change_token() == base.token
    work["read"].clear()
    assert await registry.change_token() == base.token
    assert (work["read"], work["parsed"]) == ([], [])
    replace(tmp_path / "b.json", document(view("b", tool_description="New.")))
    os.utime(tmp_path / "c.json")
    reading = await registry.read(base.token)
    assert ids(reading) == ["b"]
    assert (work["read"], work["parsed"]) == (["b.json", "c.json"], ["b.json"])


async def test_a_broken_file_is_not_taken_apart_again_and_again(tmp_path, clock, work):
    path = tmp_path / "operations.json"
    path.write_text("{")
    registry = DocumentRegistry(path, clock=clock)
    clock.ahead = 10
    for _ in range(3):
        with pytest.raises(RegistryError, match="is not JSON"):
            await registry.change_token()
    assert len(work["parsed"]) == 1
    assert len(work["read"]) == 1


async def test_a_second_change_in_the_same_tick_of_the_same_size_is_seen(tmp_path, view):
    path = tmp_path / "operations.json"
    path.write_text(document(view("a", tool_description="v0")))
    times = path.stat()
    registry = DocumentRegistry(path)
    token = (await registry.read(None)).token
    for number in range(1, 10):
        with path.open("r+") as file:
            file.write(document(view("a", tool_description=f"v{number}")))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        reading = await registry.read(token)
        assert texts(reading) == {"a": f"v{number}"}
        token = reading.token


async def test_a_file_from_the_future_is_judged_by_its_content(tmp_path, view, clock, work):
    path = tmp_path / "operations.json"
    path.write_text(document(view("a")))
    later = module.time.time_ns() + 3600 * 1_000_000_000
    os.utime(path, ns=(later, later))
    registry = DocumentRegistry(path, clock=clock)
    token = (await registry.read(None)).token
    clock.ahead = 10
    work["read"].clear()
    assert await registry.change_token() == token
    assert work["read"] == ["operations.json"]


class Writer(threading.Thread):
    """Rewrites as fast as it can until told to stop."""

    def __init__(self, write):
        super().__init__(daemon=True)
        self.write = write
        self.enough = threading.Event()
        self.count = 0

    def run(self):
        while not self.enough.is_set():
            self.count += 1
            self.write(self.count)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.enough.set()
        self.join()


@pytest.mark.parametrize("in_place", [False, True])
async def test_a_reader_never_sees_half_of_a_document(tmp_path, view, in_place):
    path = tmp_path / "operations.json"

    def write(number):
        text = f"v{number}"
        told = document(*(view(f"op{n}", tool_description=text) for n in range(20)))
        if in_place:
            path.write_text(told)
        else:
            replace(path, told)

    write(0)
    registry = DocumentRegistry(path)
    token, known, readings, troubles = None, {}, 0, set()
    with trio.fail_after(60), Writer(write) as writer:
        while readings < 30 or writer.count < 30:
            try:
                reading = await registry.read(token)
            except RegistryError as error:
                # Only who edits in place may be caught in the middle.
                troubles.add(error.trouble)
                await trio.lowlevel.checkpoint()
                if writer.count > 3000:
                    break
                continue
            readings += 1
            token = reading.token
            known |= texts(reading)
            assert len(known) == 20
            assert len(set(known.values())) == 1
    assert troubles <= ({Trouble.CORRUPT, Trouble.CHANGING} if in_place else set())
    assert set(texts(await registry.read(None)).values()) == {f"v{writer.count}"}


async def test_a_switch_of_all_links_is_seen_as_a_whole(tmp_path, view):
    mounted = MountedMap(tmp_path)

    def write(number):
        text = f"v{number}"
        mounted.views = {n: view(n, tool_description=text) for n in ("a", "b")}
        mounted.write()

    write(0)
    registry = mounted.registry = DocumentRegistry(mounted.path)
    token = (await registry.read(None)).token
    for number in range(1, 20):
        write(number)
        reading = await registry.read(token)
        assert texts(reading) == {"a": f"v{number}", "b": f"v{number}"}
        token = reading.token


async def test_files_switched_in_the_middle_of_a_look_are_taken_in_together(
    tmp_path, view, monkeypatch
):
    mounted = MountedMap(tmp_path)
    mounted.views = {n: view(n, tool_description="old") for n in ("a", "b")}
    mounted.write()
    registry = DocumentRegistry(mounted.path)
    content = DocumentRegistry._content

    def switch_after_the_first(self, path, shown):
        found = content(self, path, shown)
        if path.name == "one.json" and mounted.version == 2:
            mounted.views = {n: view(n, tool_description="new") for n in ("a", "b")}
            mounted.write()
        return found

    monkeypatch.setattr(DocumentRegistry, "_content", switch_after_the_first)
    assert texts(await registry.read(None)) == {"a": "new", "b": "new"}


async def test_what_moves_to_another_file_in_the_middle_of_a_look_is_never_gone(
    tmp_path, view, clock, monkeypatch
):
    for name, held in {"b": "b", "z": "moves"}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(view(held)))
    clock.ahead = 10
    registry = DocumentRegistry(tmp_path, clock=clock)
    token = (await registry.read(None)).token
    stat, moved = Path.stat, []

    def move_after_the_first(path, **options):
        found = stat(path, **options)
        if path.name == "b.json" and not moved:
            moved.append(path)
            (tmp_path / "new").write_text(document(view("b"), view("moves")))
            (tmp_path / "new").replace(path)
            (tmp_path / "z.json").unlink()
        return found

    monkeypatch.setattr(Path, "stat", move_after_the_first)
    reading = await registry.read(token)
    assert moved
    assert reading.removed == ()
    assert await registry.change_token() == reading.token


async def test_what_is_no_regular_file_is_not_opened_and_keeps_no_descriptor(
    tmp_path, view, monkeypatch
):
    opened, real = [], os.open

    def watch(path, *arguments):
        opened.append(Path(path).name)
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", watch)
    (tmp_path / "good.json").write_text(json.dumps(view("good")))
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "device.json").symlink_to("/dev/ptmx")
    registry = DocumentRegistry(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket.json"))
        for _ in range(5):
            reading = await registry.read(None)
    assert open_files(tmp_path) == 0
    assert set(opened) == {"good.json"}
    assert len(faults(reading)) == 4


async def test_what_is_no_regular_file_is_a_fault_and_stops_nobody(tmp_path, view):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to("nowhere.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    odd = os.fsdecode(b"\xff.json")
    (tmp_path / odd).write_text("{")
    (tmp_path / "good.json").write_text(json.dumps(view("good")))
    registry = DocumentRegistry(tmp_path)
    with trio.fail_after(10):
        reading = await registry.read(None)
    found = faults(reading)
    assert set(found) == {
        "file:pipe.json",
        "file:folder.json",
        "file:link.json",
        "file:loop.json",
        "file:\\udcff.json",
    }
    assert found["file:pipe.json"] == "pipe.json is not a regular file"
    assert found["file:folder.json"] == "folder.json is not a regular file"
    assert found["file:link.json"] == "link.json is not there"
    assert "cannot read loop.json" in found["file:loop.json"]
    assert texts(reading) == {"good": "A tool."}
    assert await registry.change_token() == reading.token


async def test_sizes_are_bounded(tmp_path, view):
    small = document(view("a"))
    (tmp_path / "a.json").write_text(small)
    (tmp_path / "big.json").write_text(document(view("b")) + " " * 5000)
    registry = DocumentRegistry(tmp_path, max_bytes=2000)
    reading = await registry.read(None)
    assert faults(reading) == {"file:big.json": "big.json is larger than 2000 bytes"}
    assert texts(reading) == {"a": "A tool."}
    for name in "cdefghij":
        (tmp_path / f"{name}.json").write_text(document(view(name)))
    with pytest.raises(RegistryError, match="larger than 2000 bytes together") as caught:
        await registry.read(None)
    assert caught.value.trouble is Trouble.TOO_LARGE
    with pytest.raises(RegistryError, match="is larger than 100 bytes"):
        await DocumentRegistry(tmp_path / "a.json", max_bytes=100).read(None)


async def test_the_number_of_files_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILES", 3)
    for name in "abcd":
        (tmp_path / f"{name}.json").write_text("{}")
    with pytest.raises(RegistryError, match="more than 3 documents"):
        await DocumentRegistry(tmp_path).read(None)


async def test_missing_is_missing_and_empty_is_empty(tmp_path, view):
    path = tmp_path / "operations"
    registry = DocumentRegistry(path)
    with pytest.raises(RegistryError, match="there is no registry at") as caught:
        await registry.change_token()
    assert caught.value.trouble is Trouble.MISSING
    path.mkdir()
    reading = await registry.read(None)
    assert (reading.entries, reading.complete) == ((), True)
    (path / "a.json").write_text(json.dumps(view("a")))
    token = (await registry.read(None)).token
    # A file where the folder was.
    path.rename(tmp_path / "away")
    path.write_text(document(view("b")))
    reading = await registry.read(token)
    assert (ids(reading), reading.removed) == (["b"], ("a",))
    with pytest.raises(RegistryError, match="cannot read") as caught:
        await DocumentRegistry(path / "below").read(None)
    assert caught.value.trouble is Trouble.UNREADABLE


async def test_ten_thousand_operations_in_one_document_and_one_change_cost_one_compile(
    tmp_path, view, compiler, host
):
    path = tmp_path / "operations.json"
    views = [view(f"op{n}") for n in range(10_000)]
    replace(path, document(*views))
    actor = CatalogActor(DocumentRegistry(path), compiler)
    actor.bind(host)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await actor.ready.wait()
        compiler.compiled.clear()
        views[5000]["tool_description"] = "New."
        replace(path, document(*views))
        await actor.refresh()
        assert compiler.compiled == ["op5000"]
        nursery.cancel_scope.cancel()
