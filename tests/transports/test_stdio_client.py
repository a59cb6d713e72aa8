"""Programs as the other end of a line: how they are started, what they say, how they end.

The messages of such a line are tested in `test_lines`, without a program.
"""

import contextlib
import logging
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
import trio

from mcp_trio import Command
from mcp_trio.errors import ConfigurationError, TransportError
from mcp_trio.testing import cancelled_after, check_transport
from mcp_trio.transports.lines import LineTransport, ProgramLine
from mcp_trio.transports.stdio_client import running


def python(code, *arguments, **settings):
    # Isolated and without site packages, because that starts fast.
    program = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code), *arguments]
    return Command(program, **{"stderr": "drop", **settings})


def living(group):
    """The processes of a group that have not ended; one may wait to be reaped by its new parent."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if its_group == str(group) and state != "Z":
            found.append(stat.parent.name)
    return found


def check_nothing_is_left_of(pid):
    assert living(pid) == []
    with pytest.raises(ChildProcessError):  # it has been reaped
        os.waitpid(pid, os.WNOHANG)


async def printed(program):
    """What a program prints until it closes its output."""
    return b"".join([chunk async for chunk in program.stdout]).decode()


# -- starting --------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [[], "python server.py", b"python", ["a", 1], ["a\0b"]])
def test_a_command_is_a_list_of_text(wrong):
    with pytest.raises(ConfigurationError, match="list of text"):
        Command(wrong)


async def test_paths_may_stand_in_a_command(tmp_path):
    file = tmp_path / "hello.py"
    file.write_text("print('hello')")
    async with running(Command([Path(sys.executable), file])) as program:
        assert await printed(program) == "hello\n"


async def test_only_harmless_variables_are_inherited_and_given_ones_come_on_top(monkeypatch):
    monkeypatch.setenv("API_TOKEN", "secret")
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setenv("LANG", "C.UTF-8")
    command = python(
        "import os; print(sorted(os.environ.items()))", env={"GIVEN": "1", "LANG": "xx"}
    )
    async with running(command) as program:
        said = await printed(program)
    assert "('GIVEN', '1')" in said
    assert "('LANG', 'xx')" in said
    assert "('PATH', '/bin:/usr/bin')" in said
    assert "secret" not in said
    assert "GIVEN" not in repr(command)  # what is given may be secret, too


async def test_it_runs_where_it_is_told(tmp_path):
    async with running(python("import os; print(os.getcwd())", cwd=tmp_path)) as program:
        assert await printed(program) == f"{tmp_path}\n"


async def test_a_program_or_a_directory_that_is_not_there_is_an_error(tmp_path):
    for command in (
        Command(["/no/such/program"]),
        Command([tmp_path]),
        python("", cwd=tmp_path / "no"),
    ):
        with pytest.raises(TransportError, match="cannot start"):
            async with running(command):
                raise AssertionError("started")


# -- standard error --------------------------------------------------------------------

TALKS = """
import os, sys
os.write(2, b"one\\ntwo \\xff\\nthr")
os.write(2, b"ee")
"""


async def test_standard_error_is_passed_on(capsys):
    async with running(python(TALKS, stderr="pass")) as program:
        await program.fate()
    assert capsys.readouterr().err == "one\ntwo \ufffd\nthree"
    assert program.last_lines == ("one", "two \ufffd", "three")


async def test_standard_error_is_dropped(capfd):
    async with running(python(TALKS)) as program:
        await program.fate()
    assert capfd.readouterr() == ("", "")
    assert program.last_lines[-1] == "three"


async def test_standard_error_is_handed_over(capfd):
    lines = []
    async with running(python(TALKS, stderr=lines.append)):
        pass
    assert lines == ["one", "two \ufffd", "three"]
    assert capfd.readouterr() == ("", "")


async def test_a_failing_callback_for_standard_error_ends_nothing(caplog):
    def fail(line):
        raise KeyError(line)

    async with running(python(TALKS, stderr=fail)) as program:
        await program.fate()
    assert program.last_lines[-1] == "three"
    assert [r.levelno for r in caplog.records] == [logging.ERROR] * 3


async def test_a_lot_on_standard_error_is_bounded_and_stops_nobody():
    code = """
    import sys
    sys.stderr.write("x" * 10_000_000 + "\\n")
    sys.stderr.write("line\\n" * 100_000)
    print("done")
    """
    async with running(python(code)) as program:
        assert await printed(program) == "done\n"
        await program.fate()
    assert program.last_lines == ("line",) * 20


# -- ending ----------------------------------------------------------------------------

POLITE = "import sys; sys.stdin.read(); print('input has ended', file=sys.stderr)"
DEAF = """
import signal, sys, time

def term(*_):
    print("told to end", file=sys.stderr, flush=True)
    sys.exit()

signal.signal(signal.SIGTERM, term)
print("ready", flush=True)
while True:
    time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("code", "settings", "said"),
    [
        (POLITE, {"grace": 60.0}, ("input has ended",)),
        (DEAF, {"grace": 0.1}, ("told to end",)),
        (STUBBORN, {"grace": 0.1}, ()),
    ],
    ids=["closed input", "SIGTERM", "SIGKILL"],
)
async def test_it_is_asked_to_end_before_it_is_made_to(code, settings, said):
    with trio.fail_after(30):
        async with running(python(code, **settings)) as program:
            if code is not POLITE:
                assert await program.stdout.receive_some() == b"ready\n"
    assert program.last_lines == said
    check_nothing_is_left_of(program.pid)


LEAVES = """
import subprocess, sys
subprocess.Popen([sys.executable, "-I", "-S", "-c", sys.argv[1]]).stdout
sys.stdin.read()
"""


@pytest.mark.parametrize("code", [DEAF, STUBBORN], ids=["gentle", "stubborn"])
@pytest.mark.filterwarnings("ignore:subprocess")
async def test_its_children_are_ended_too_although_it_has_ended_itself(code):
    with trio.fail_after(30):
        async with running(python(LEAVES, code, grace=0.1)) as program:
            assert await program.stdout.receive_some() == b"ready\n"
            assert len(living(program.pid)) == 2
    assert program.last_lines == (("told to end",) if code is DEAF else ())
    check_nothing_is_left_of(program.pid)


async def test_a_child_that_holds_the_output_open_does_not_hide_the_end():
    code = """
    import subprocess
    subprocess.Popen(["sleep", "60"])
    raise SystemExit(4)
    """
    with trio.fail_after(30):
        async with running(python(code, grace=0.1)) as program:
            with pytest.raises(trio.ClosedResourceError):
                await program.stdout.receive_some()
            assert await program.fate() == "python has ended with exit status 4"
    check_nothing_is_left_of(program.pid)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise SystemExit(3)", "has ended with exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9 (Killed)"),
        ("import os; os.close(1); input()", "has closed its output"),
    ],
)
async def test_it_is_told_how_it_ended(code, told):
    async with running(python(code)) as program:
        assert await printed(program) == ""
        assert await program.fate() == f"python {told}"
    check_nothing_is_left_of(program.pid)


async def test_an_error_in_the_block_ends_it_too():
    with pytest.raises(ExceptionGroup) as caught:
        async with running(python(POLITE)) as program:
            raise KeyError("mine")
    assert isinstance(caught.value.exceptions[0], KeyError)
    check_nothing_is_left_of(program.pid)


async def test_nothing_is_left_wherever_it_is_cancelled():
    started = []

    async def scenario():
        async with running(Command(["cat"], grace=10.0)) as program:
            started.append(program.pid)
            await program.stdin.send_all(b"hello")
            assert await program.stdout.receive_some() == b"hello"

    step = 1
    while await cancelled_after(step, scenario):
        step += 1
    assert step > 10
    for pid in started:
        check_nothing_is_left_of(pid)


async def test_it_does_not_get_the_signals_of_our_terminal():
    async with running(python("import os; print(os.getpgid(0), os.getsid(0))")) as program:
        assert await printed(program) == f"{program.pid} {program.pid}\n"
    assert program.pid != os.getpgid(0)
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL  # nor do we take any


# -- the battery -----------------------------------------------------------------------

RELAY = """
    import os, socket, sys, threading

    line = socket.socket(socket.AF_UNIX)
    line.connect(sys.argv[1])

    def copy_in():
        while data := os.read(0, 65536):
            line.sendall(data)
        line.shutdown(socket.SHUT_WR)

    threading.Thread(target=copy_in).start()
    while data := line.recv(65536):
        while data:
            data = data[os.write(1, data):]
    os.close(1)
"""
"""A program that says what it is told through a socket, and tells there what it hears."""


@contextlib.asynccontextmanager
async def programs(tmp_path):
    """A function that makes pairs: the line to a program, and the test that speaks for it."""
    path = str(tmp_path / "socket")
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(path)
    listening.listen()

    async def run(*, task_status):
        async with running(python(RELAY, path, grace=0.2)) as program:
            line, _ = await listening.accept()
            stream = trio.SocketStream(line)
            ours = ProgramLine(program.stdout, program.stdin, fate=program.fate)
            task_status.started((ours, LineTransport(stream, stream)))
            await program.wait()

    async with trio.open_nursery() as nursery:

        async def make():
            return await nursery.start(run)

        yield make
        nursery.cancel_scope.cancel()
    listening.close()


async def stop_sending(end):
    if isinstance(end, ProgramLine):
        await end._outgoing.aclose()
    else:
        await end._outgoing.send_eof()


async def test_the_line_to_a_program_passes_the_battery(tmp_path):
    async with programs(tmp_path) as make:
        await check_transport(make, half_close=stop_sending)
