"""Lines to a file or stream: in order, never in the way, none lost in silence."""

import os
import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_trio.errors import ConfigurationError
from mcp_trio.telemetry import line_writer
from mcp_trio.telemetry.line_writer import LineWriter


@pytest.fixture
def told():
    return []


@pytest.fixture
def pipe():
    """The two ends of a pipe, as files, so that nothing is closed twice."""
    reading, writing = (
        os.fdopen(end, mode, 0) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
    )
    yield reading, writing
    reading.close()
    writing.close()


class Disk:
    """Takes as many bytes as it has room for."""

    def __init__(self):
        self.room = 1 << 20
        self.real = os.write

    def write(self, fd, data):
        if not self.room:
            raise OSError(28, "No space left on device")
        sent = self.real(fd, bytes(data[: self.room]))
        self.room -= sent
        return sent


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    monkeypatch.setattr(line_writer.os, "write", disk.write)
    return disk


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await trio.sleep(0.01)
    raise AssertionError("it never came")


def full(fd):
    """Fill a pipe to the brim."""
    os.set_blocking(fd, False)
    try:
        while True:
            os.write(fd, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(fd, True)


async def test_lines_are_written_in_order_and_all_of_them_before_the_block_ends(tmp_path, told):
    path = tmp_path / "log"
    writer = LineWriter(path, "the log", report=told.append)
    async with writer.running():
        for number in range(1000):
            assert writer.put(b"%d\n" % number)
    assert path.read_bytes() == b"".join(b"%d\n" % number for number in range(1000))
    assert (writer.dropped, told) == (0, [])
    writer.close()


async def test_lines_are_written_before_it_runs_and_after(tmp_path):
    writer = LineWriter(tmp_path / "log", "the log")
    writer.put(b"before\n")
    async with writer.running():
        writer.put(b"while\n")
    writer.put(b"after\n")
    assert (tmp_path / "log").read_text().split() == ["before", "while", "after"]
    writer.close()


async def test_lines_come_from_any_thread(tmp_path):
    writer = LineWriter(tmp_path / "log", "the log")
    async with writer.running():
        threads = [
            threading.Thread(target=lambda: [writer.put(b"line\n") for _ in range(200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            await trio.to_thread.run_sync(thread.join)
    assert (tmp_path / "log").read_bytes() == b"line\n" * 800
    writer.close()


async def test_a_cancelled_service_loses_no_line(tmp_path):
    writer = LineWriter(tmp_path / "log", "the log")
    with trio.CancelScope() as scope:
        async with writer.running():
            writer.put(b"one\n")
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                writer.put(b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    writer.close()


async def test_a_pipe_that_nobody_reads_holds_up_nobody_and_what_does_not_fit_is_counted(
    pipe, told, monkeypatch
):
    monkeypatch.setattr(line_writer, "MAX_LINES", 100)
    reading, writing = pipe
    full(writing.fileno())
    writer = LineWriter(writing.fileno(), "the log", report=told.append)
    with trio.fail_after(20):
        async with writer.running():
            writer.put(b"first\n")
            await wait_all_tasks_blocked()  # a thread hangs in the write now
            taken = sum(writer.put(b"line\n") for _ in range(500))
            assert (taken, writer.dropped) == (100, 400)
            os.set_blocking(reading.fileno(), False)
            got = b""
            while not got.endswith(b"line\n" * 100):
                await trio.lowlevel.wait_readable(reading)
                got += os.read(reading.fileno(), 1 << 20)
    assert got.lstrip(b"x") == b"first\n" + b"line\n" * 100
    assert told == ["the log has lost 400 lines"]


async def test_a_pipe_that_hangs_to_the_end_is_given_up_in_time(pipe, told, monkeypatch):
    monkeypatch.setattr(line_writer, "FLUSH_TIMEOUT", 0.05)
    reading, writing = pipe
    full(writing.fileno())
    writer = LineWriter(writing.fileno(), "the log", report=told.append)
    with trio.fail_after(20):
        async with writer.running():
            writer.put(b"first\n")
            await wait_all_tasks_blocked()
            writer.put(b"second\n")
    assert told == ["the log has lost 2 lines"]
    assert not writer.put(b"third\n")  # which would hang for ever
    reading.close()  # lets the thread go


async def test_a_closed_pipe_is_reported_once(pipe, told, autojump_clock):
    reading, writing = pipe
    writer = LineWriter(writing.fileno(), "the log", report=told.append)
    reading.close()
    async with writer.running():
        writer.put(b"one\n")
        await until(lambda: writer.trouble)
        await trio.sleep(100)
        assert told == ["the log cannot be written: Broken pipe"]
        writer.put(b"two\n")
    assert told[1:] == ["the log has lost 2 lines"]


async def test_what_a_full_disk_kept_out_is_written_when_there_is_room_again(
    tmp_path, told, disk, autojump_clock
):
    writer = LineWriter(tmp_path / "log", "the log", report=told.append)
    disk.room = 3
    async with writer.running():
        writer.put(b"first\nsecond\n")
        await until(lambda: writer.trouble)
        assert (tmp_path / "log").read_bytes() == b"fir"
        disk.room = 1000
        await until(lambda: not writer.trouble)
    assert (tmp_path / "log").read_bytes() == b"first\nsecond\n"
    assert told == [
        "the log cannot be written: No space left on device",
        "the log is written again",
    ]
    writer.close()


async def test_a_line_that_was_cut_off_is_whole_in_the_file_that_comes_after(
    tmp_path, told, disk, autojump_clock
):
    path = tmp_path / "log"
    writer = LineWriter(path, "the log", report=told.append)
    disk.room = 8
    async with writer.running():
        writer.put(b"first\nsecond\n")
        await until(lambda: writer.trouble)
        path.rename(tmp_path / "log.1")
        writer.reopen()
        # An attempt that is being made may still be about the old file.
        await until(path.exists)
        disk.room = 1000
        await until(lambda: not writer.trouble)
    assert ((tmp_path / "log.1").read_bytes(), path.read_bytes()) == (b"first\nse", b"second\n")
    writer.close()


async def test_after_a_rename_lines_go_on_in_a_new_file(tmp_path):
    path, old = tmp_path / "log", tmp_path / "log.1"
    writer = LineWriter(path, "the log")
    async with writer.running():
        assert await writer.put_and_wait(b"one\n", 5)
        path.rename(old)
        assert await writer.put_and_wait(b"two\n", 5)
        writer.reopen()
        assert await writer.put_and_wait(b"three\n", 5)
    assert (old.read_text(), path.read_text()) == ("one\ntwo\n", "three\n")
    assert path.stat().st_mode & 0o027 == 0
    writer.close()


async def test_a_file_that_cannot_be_opened_again_leaves_the_old_one_in_use(tmp_path, told):
    folder = tmp_path / "logs"
    folder.mkdir()
    writer = LineWriter(folder / "log", "the log", report=told.append)
    async with writer.running():
        folder.rename(tmp_path / "gone")
        writer.reopen()
        assert await writer.put_and_wait(b"one\n", 5)
    assert (tmp_path / "gone" / "log").read_text() == "one\n"
    assert "No such file or directory; it goes on in the file that was open" in told[0]
    writer.close()


async def test_who_waits_for_a_line_is_told_whether_it_is_written(pipe):
    reading, writing = pipe
    writer = LineWriter(writing.fileno(), "the log", report=lambda text: None)
    async with writer.running():
        assert await writer.put_and_wait(b"one\n", 5)
        assert os.read(reading.fileno(), 100) == b"one\n"
        reading.close()
        with trio.fail_after(20):
            assert not await writer.put_and_wait(b"two\n", 0.05)


async def test_who_waits_is_told_the_truth_also_after_lines_were_lost(tmp_path, disk):
    writer = LineWriter(tmp_path / "log", "the log", report=lambda text: None)
    disk.room = 0
    async with writer.running():
        assert not await writer.put_and_wait(b"lost\n", 0.01)
    disk.room = 1000
    async with writer.running():
        assert await writer.put_and_wait(b"one\n", 5)
    assert (tmp_path / "log").read_text() == "one\n"
    writer.close()


def test_a_place_that_cannot_be_opened_is_told_at_once(tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot write .*/none/log: No such file"):
        LineWriter(tmp_path / "none" / "log", "the log")
