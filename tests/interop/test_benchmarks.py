"""The suite of benchmarks: what it makes of numbers, and that it runs. Nothing is timed here."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import attrs
import pytest
import trio

from benchmarks import __main__ as suite
from benchmarks import import_time
from benchmarks.calls import HANDSHAKE, STATELESS, Line
from benchmarks.cancel_latency import OnLine
from benchmarks.cancel_waste import CALLS, Trial
from benchmarks.clients import children
from benchmarks.contenders import Commands, Pair, Programs
from benchmarks.findings import Grid, Growth, Outcome, Rounds, Waits, exponent
from benchmarks.moments import Moments
from benchmarks.page import html_of, picture
from benchmarks.processes import ROOT, ProgramError, need, output_of, serving, serving_all
from benchmarks.report import text_of
from benchmarks.servers import telling
from benchmarks.tools_call_http import NEWS, RIGHT
from benchmarks.turns import turns
from benchmarks.wires import Pipes
from tests.programs import load


def outcome(*findings):
    return Outcome(name="some", question="Why?", findings=list(findings), seconds=1.0)


def test_a_ratio_says_how_many_times_better_ours_is():
    more = Rounds(title="t", unit="u", better="more", figures={"a": [4, 8, 6], "b": [3], "c": []})
    assert more.ratios() == {"b": 2.0, "c": None}
    less = Rounds(title="t", unit="u", better="less", figures={"a": [2], "b": [3, 9, 8]})
    assert less.ratios() == {"b": 4.0}
    parts = Rounds(title="t", unit="u", better="less", figures={"a": [2], "b": [3]}, rivals=False)
    assert parts.ratios() == {}


@pytest.mark.parametrize(
    ("points", "power"),
    [
        ([(10, 5), (100, 5), (1000, 5)], 0),
        ([(10, 1), (100, 10), (1000, 100)], 1),
        ([(10, 1), (100, 100), (1000, 10_000)], 2),
        ([(1, 3), (4, 6)], 0.5),
    ],
)
def test_the_exponent_is_the_power_with_which_cost_grows(points, power):
    assert exponent(points) == pytest.approx(power)


def test_what_grows_faster_than_it_may_is_a_fault_and_so_is_who_failed():
    square = [(10.0, 1.0), (100.0, 100.0)]
    grown = Growth(
        title="cost", unit="ms", size="things", figures={"a": square, "b": square}, most={"a": 1.1}
    )
    failed = Rounds(
        title="t", unit="u", better="more", figures={"a": [1], "b": []}, failures={"b": "no answer"}
    )
    faults = outcome(grown, failed).faults
    assert faults == [
        "b failed: no answer",
        "cost: a grows with power 2.00, not 1.1 at most",
    ]
    assert outcome(failed).as_json()["faults"] == ["b failed: no answer"]


def test_the_text_has_ratios_waits_that_never_came_and_failures():
    waits = Waits(title="waits", figures={"a": [1.0, 2.0], "b": [4.0, None], "c": [None]})
    rounds = Rounds(
        title="rounds",
        unit="calls",
        better="more",
        figures={"a": [200], "b": []},
        failures={"b": "broke off"},
    )
    told = text_of(outcome(waits, rounds))
    assert "- b takes, against a: 2.00x (p50), 2.00x (p99) of its time" in told
    assert "- c: no ratio, one of them never came" in told
    assert "| c | - | - | - | 1 | 1 |" in told
    assert "| b | FAILED: broke off | | |" in told
    assert "FAULT: b failed: broke off" in told


def test_a_grid_tells_what_never_came_and_why_a_number_is_missing():
    grid = Grid(
        title="left",
        unit="tasks",
        columns=["cancel", "death"],
        figures={"a": [0, "one process"], "b": [2.5, None]},
        failures={"c": "no answer"},
    )
    told = text_of(outcome(grid))
    assert "| tasks | cancel | death |" in told
    assert "| a | 0 | one process |" in told
    assert "| b | 2.5 | never |" in told
    assert "FAULT: c failed: no answer" in told


def test_numbers_that_were_written_are_read_again():
    before = outcome(
        Rounds(title="r", unit="u", better="more", figures={"a": [1]}, rivals=False),
        Waits(title="w", figures={"a": [1.0, None]}, failures={"b": "no answer"}),
        Growth(title="g", unit="u", size="s", figures={"a": [[1, 2]]}, most={"a": 1}, rate="n"),
        Grid(title="c", unit="u", columns=["x"], figures={"a": [None]}),
    )
    again = Outcome.from_json(json.loads(json.dumps(before.as_json())))
    assert again == before


def test_the_pages_take_what_was_measured_into_their_places():
    script = load(ROOT / "docs" / "measured.py")
    waits = Waits(title="How long", figures={"a": [1.0, 2.0]})
    told = {"machine": "a machine", "quick": False, "outcomes": [outcome(waits).as_json()]}
    place = "<!-- measured: {} -->\n{}<!-- end -->\n"
    page = place.format("some-1", "old\n") + place.format("other-1", "old\n")
    page += place.format("machine", "") + place.format("whole", "old\n")
    more = [Waits(title=title, figures={"b": [3.0]}) for title in ("First", "Second")]
    told["outcomes"].append(attrs.evolve(outcome(*more), name="whole").as_json())
    page += place.format("whole-2", "")

    filled = script.page_with_numbers(page, told)

    assert filled.count("**First**") == 1
    assert "**Second**" not in filled
    assert "![Second](pictures/whole-2.png)" in filled
    assert "![How long](pictures/some-1.png)" in filled
    assert "python -m benchmarks some --png pictures" in filled
    assert "| a | 2 | 2 | 2 | 0 | 2 |" in filled
    assert place.format("other-1", "old\n") in filled
    assert place.format("machine", "a machine.\n") in filled
    assert script.page_with_numbers(filled, told) == filled


def test_each_measured_place_is_of_a_benchmark_and_has_its_picture():
    script = load(ROOT / "docs" / "measured.py")
    for page in script.PAGES:
        names = {name for _, name, _ in script.PLACE.findall(page.read_text())}
        assert len(names) > 10
        for name in names - {"machine", *suite.NAMES}:
            assert name.rpartition("-")[0] in suite.NAMES
            assert (page.parent / script.PICTURES / f"{name}.png").exists()


def test_what_a_handler_tells_of_is_heard_with_its_time():
    moments = Moments()
    telling.tell(moments.port, "a-call", telling.BEGAN, 1.5)
    telling.tell(moments.port, "a-call", telling.ENDED)
    now = time.monotonic()
    assert moments.wait("a-call", telling.BEGAN, 10) == 1.5
    assert now - 1 < moments.wait("a-call", telling.ENDED, 10) <= now
    moments.forget("a-call")
    assert moments.wait("a-call", telling.BEGAN, 0) is None
    moments.close()


def test_the_plain_client_gives_calls_up_on_a_line_while_others_run():
    moments = Moments()
    command = [sys.executable, ROOT / "benchmarks" / "servers" / "ours.py", "stdio"]
    rival = OnLine(name="a", moments=moments, others=2, seconds=30, make=lambda: Pipes(command))
    rival.block(2)
    moments.close()
    assert rival.failure is None
    assert [0 < taken < 2 for taken in rival.taken] == [True, True]


def test_what_a_client_leaves_is_counted():
    moments = Moments()
    here = ROOT / "benchmarks"
    known = Commands(
        serving={},
        on_stdio={},
        clients={"mcp_trio": [sys.executable, here / "workers" / "client_ours.py"]},
    )
    pair = Pair("mcp_trio", "memory", STATELESS)
    left = Trial(known, pair, "cancel", moments).run("", None, fresh=True)
    moments.close()
    assert left.clean
    assert len(left.seconds) == len(left.steps) == CALLS
    assert max(left.steps) < 1000


async def test_workers_take_turns_and_one_that_fails_does_so_for_all_rounds(tmp_path):
    works = tmp_path / "works.py"
    works.write_text('print(\'{"1": [100, 7], "16": [400, 5]}\')')
    breaks = tmp_path / "breaks.py"
    breaks.write_text("raise SystemExit('2 + 40 is 41')")
    commands = {name: [sys.executable, file] for name, file in (("a", works), ("b", breaks))}
    findings = await turns("calls", "client", commands, 2)
    one, its_cost, many, many_cost = findings
    assert one.figures == {"a": [100, 100], "b": []}
    assert its_cost.figures["a"] == [7, 7]
    assert many.figures["a"] == [400, 400]
    assert many_cost.figures["a"] == [5, 5]
    assert outcome(one).faults == ["b failed: 2 + 40 is 41"]


@pytest.fixture
async def ours():
    servers = ROOT / "benchmarks" / "servers"
    async with serving([sys.executable, servers / "floor.py", "upstream"]) as upstream:
        async with serving([sys.executable, servers / "ours.py", upstream.url]) as program:
            yield program.url


@pytest.mark.parametrize("revision", [STATELESS, HANDSHAKE])
async def test_our_server_gives_every_answer_that_is_measured(ours, revision):
    def ask():
        line = Line(ours)
        dialect = line.open(revision)
        given = [
            line.call(dialect, name, {"a": 2, "b": 40})
            for name in ("add", "add_static", "add_rest")
        ]
        body = dialect.call("last", "add_talking", {"a": 2, "b": 40}, token="told")
        with line.post(dialect.headers("add_talking"), body) as response:
            stream = response.read().decode()
        line.close()
        return given, stream

    given, stream = await trio.to_thread.run_sync(ask)
    assert given == [42, 42, 42]
    assert stream.index(NEWS) < stream.index(RIGHT)


def test_each_benchmark_has_a_question_and_is_named_in_the_help():
    for name in suite.NAMES:
        code = (ROOT / "benchmarks" / f"{name}.py").read_text()
        assert code.startswith(('"""What', '"""How')), name
        assert code.partition("\n")[0].removesuffix('"""').endswith("?"), name
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = told.replace("\n", " ").replace(",", " ").replace(".", " ").split()
    assert set(suite.NAMES) <= set(words)


def test_it_runs_what_is_named_and_writes_numbers_to_a_folder_that_it_makes(tmp_path):
    file = tmp_path / "not" / "there" / "numbers.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "codec", "--quick", "--json", file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "# codec" in done.stdout, done.stderr
    told = json.loads(file.read_text())
    (found,) = told["outcomes"]
    assert (found["name"], told["quick"]) == ("codec", True)
    (growth,) = found["findings"]
    assert growth["kind"] == "growth"
    assert [size for size, _ in growth["figures"]["read a request"]] == [10, 100, 1000]


def test_a_name_that_is_none_is_refused_with_those_that_are():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "speed"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "cancel_latency" in done.stderr


def benchmarks(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


@pytest.mark.parametrize("option", ["--json", "--png"])
def test_where_nothing_can_be_written_is_told_before_anything_is_measured(tmp_path, option):
    if option == "--png" and importlib.util.find_spec("matplotlib") is None:
        pytest.skip("needs matplotlib")
    (tmp_path / "file").write_text("kept")
    done = benchmarks("codec", "--quick", option, tmp_path / "file" / "numbers")
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert "codec" not in done.stdout
    assert (tmp_path / "file").read_text() == "kept"


def test_a_benchmark_without_its_programs_fails_and_the_rest_goes_on(tmp_path):
    (tmp_path / "wrk").symlink_to("/bin/true")
    file = tmp_path / "numbers.json"
    names = ["tools_call_http", "codec"]
    done = benchmarks(*names, "--quick", "--json", file, env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "FAULT: tools_call_http failed: taskset is not on the PATH" in done.stdout
    assert "Traceback" not in done.stderr
    http, codec = json.loads(file.read_text())["outcomes"]
    assert (http["findings"], codec["faults"]) == ([], [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_writes_what_it_has_and_leaves_no_process(tmp_path, number):
    file = tmp_path / "numbers.json"
    # Where the tests run in the background, a child inherits that Ctrl-C is ignored.
    code = """if True:
        import runpy, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
    """
    command = [sys.executable, "-c", code, "codec", "converter", "--quick", "--json", file]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        next(line for line in run.stderr if "2 of 2" in line)
        while not (started := children(run.pid)) and run.poll() is None:
            os.sched_yield()
        run.send_signal(number)
        rest = run.stderr.read()
        assert run.wait(30) == 130, rest
    assert "1 of 2 were measured" in rest
    assert "Traceback" not in rest
    assert started
    assert not any(Path(f"/proc/{process}").exists() for process in started)
    (codec,) = json.loads(file.read_text())["outcomes"]
    assert codec["name"] == "codec"


async def test_a_server_that_does_not_start_is_told_with_why_and_the_others_run(tmp_path):
    breaks = tmp_path / "breaks.py"
    breaks.write_text("raise SystemExit('broken by hand')")
    floor = ROOT / "benchmarks" / "servers" / "floor.py"
    commands = {
        "broken": [sys.executable, breaks],
        "missing": [tmp_path / "nobody"],
        "floor": [sys.executable, floor, "socket"],
    }
    async with serving_all(commands) as crew:
        assert list(crew.running) == ["floor"]
        assert crew.failures == {
            "broken": "broken by hand",
            "missing": f"{tmp_path / 'nobody'} is not on the PATH",
        }
        everybody = Programs(crew, Commands({}, {}, {}))
        assert everybody.url("floor").startswith("http://127.0.0.1:")
        with pytest.raises(ProgramError, match="broken did not start: broken by hand"):
            everybody.url("broken")


async def test_programs_start_while_this_process_is_bound_to_a_core_but_two_are_needed_before():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        pinned = ["taskset", "-c", str(min(before)), "echo", "done"]
        assert await output_of(pinned, within=30, what="echo") == "done\n"
        with pytest.raises(ProgramError, match="a core each"):
            need("taskset")
    finally:
        os.sched_setaffinity(0, before)


def test_who_failed_has_no_waits_and_is_shown_as_failed():
    waits = Waits(title="w", figures={"a": [1.0], "b": []}, failures={"b": "broken by hand"})
    told = text_of(outcome(waits))
    assert "- b: no ratio, one of them failed" in told
    assert "| b | FAILED: broken by hand | | | | |" in told


def test_a_page_tells_of_a_benchmark_that_failed_as_a_whole():
    failed = attrs.evolve(outcome(), failure="taskset <none>")
    page = html_of([failed], "a machine", quick=False)
    assert "<a href='#some'>some</a> (failures)" in page
    assert "some failed: taskset &lt;none&gt;" in page
    assert "://" not in page


@pytest.mark.parametrize(
    "finding",
    [
        Rounds(title="t", unit="u", better="less", figures={"a": []}, failures={"a": "x"}),
        Waits(title="t", figures={"a": [], "b": [None]}, failures={"a": "x"}),
        Growth(title="t", unit="u", size="s", figures={}),
        Grid(title="t", unit="u", columns=["x"], figures={}, failures={"a": "x"}),
    ],
    ids=lambda finding: type(finding).__name__,
)
def test_a_picture_of_nothing_but_failures_is_drawn(finding):
    pytest.importorskip("matplotlib")
    assert picture(finding, under="a machine").startswith(b"\x89PNG")


async def test_a_package_that_cannot_be_imported_fails_alone(monkeypatch, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such package' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(import_time, "peer_python", lambda *_: broken)
    imports, tools = await import_time.measure(quick=True)
    ours = {name for name, values in imports.figures.items() if values}
    assert ours == {name for name in imports.figures if name.startswith("mcp_trio")}
    assert set(imports.failures.values()) == {"no such package"}
    assert imports.failures.keys() >= imports.figures.keys() - ours
    assert [size for size, _ in tools.figures["mcp_trio"]] == [10, 100, 1000]
    assert "official" not in tools.figures


@pytest.mark.parametrize(("quick", "faults"), [(False, 1), (True, 0)])
def test_a_quick_run_does_not_judge_how_cost_grows(monkeypatch, quick, faults):
    async def measure(_quick):
        points = {"a": [(1.0, 1.0), (10.0, 100.0)]}
        return [Growth(title="t", unit="u", size="s", figures=points, most={"a": 1.1})]

    module = types.ModuleType("benchmarks.grows", "How?")
    module.measure = measure
    monkeypatch.setitem(sys.modules, "benchmarks.grows", module)
    assert len(suite.run("grows", quick=quick).faults) == faults


async def test_servers_are_those_of_the_checkout_whatever_is_installed(monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import mcp_trio; print(mcp_trio.__file__)")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    suite.measure_checkout()
    said = await output_of([sys.executable, script], within=30, what="the script")
    assert said.strip() == str(ROOT / "mcp_trio" / "__init__.py")
