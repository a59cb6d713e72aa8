"""The suite of benchmarks: what it makes of numbers, and that it runs. Nothing is timed here."""

import json
import subprocess
import sys

import pytest

from benchmarks import __main__ as suite
from benchmarks.findings import Growth, Outcome, Rounds, Waits, exponent
from benchmarks.processes import ROOT
from benchmarks.report import text_of


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
    assert "- b takes as long as a times 2.0x (p50), 2.0x (p99)" in told
    assert "- c: no ratio, one of them never came" in told
    assert "| c | - | - | - | 1 | 1 |" in told
    assert "| b | FAILED: broke off | | |" in told
    assert "FAULT: b failed: broke off" in told


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


def test_it_runs_what_is_named_and_writes_numbers(tmp_path):
    file = tmp_path / "numbers.json"
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
