"""The judgement of conformance runs: nothing that went wrong may look like a pass."""

import json
import tomllib
from pathlib import Path

import attrs
import pytest

from tests.conformance.judge import (
    Baseline,
    Outcome,
    judge,
    read_baseline,
    read_listing,
    read_outcome,
    read_results,
)

GREEN = Outcome(passed=2, behaviour=1)
RED = Outcome(passed=1, faults=("FAILURE ping: no",))
EMPTY = Outcome()
BASELINE = Baseline(least={"ping": 2}, unbuilt={"prompts-list": "prompts"}, hollow={"mrtr": "ask"})
OUTCOMES = {"ping": GREEN, "prompts-list": RED, "mrtr": GREEN}


def report_of(outcomes, *, baseline=BASELINE, listed=tuple(OUTCOMES), tools=()):
    return judge("today", baseline, listed=listed, outcomes=outcomes, tools=tools)


def problems_with(**changes):
    return report_of({**OUTCOMES, **changes.pop("outcomes", {})}, **changes).problems


def test_a_run_as_expected_counts_only_what_was_really_shown():
    report = report_of(OUTCOMES)
    assert report.problems == ()
    assert (report.passed, report.green) == (2, 1)
    assert {"prompts-list", "mrtr"} == set(report.expected)


@pytest.mark.parametrize("outcome", [RED, EMPTY])
def test_a_scenario_outside_the_baseline_must_be_green(outcome):
    listed = (*OUTCOMES, "caching")
    assert any(
        problem.startswith("caching: ")
        for problem in problems_with(outcomes={"caching": outcome}, listed=listed)
    )


def test_a_scenario_that_turned_green_makes_the_baseline_stale():
    assert "take it out" in problems_with(outcomes={"prompts-list": GREEN})[0]


def test_a_hollow_scenario_is_stale_once_its_fixture_exists():
    assert "take it out" in problems_with(tools=("ask",))[0]


def test_a_hollow_scenario_that_fails_is_a_problem():
    assert "mrtr: FAILURE ping: no" in problems_with(outcomes={"mrtr": RED})


def test_a_scenario_that_lost_checks_is_a_problem():
    assert (
        "1 checks passed, 2 are expected"
        in problems_with(outcomes={"ping": Outcome(passed=1, behaviour=1)})[0]
    )


def test_a_missing_feature_does_not_excuse_malformed_messages():
    assert problems_with(outcomes={"prompts-list": attrs.evolve(RED, malformed=True)})


def test_a_scenario_without_a_result_is_a_problem():
    assert problems_with(listed=(*OUTCOMES, "caching")) == ("caching: the suite wrote no result",)


def test_nothing_at_all_is_not_a_pass():
    report = report_of({})
    assert report.passed == 0
    assert len(OUTCOMES) == len(report.problems)


def test_a_baseline_entry_the_suite_does_not_know_is_a_problem():
    baseline = attrs.evolve(BASELINE, unbuilt={**BASELINE.unbuilt, "renamed": "x"})
    assert "unknown to the suite" in problems_with(baseline=baseline)[0]


def test_warnings_are_faults_and_schema_checks_are_no_behaviour():
    outcome = read_outcome(
        [
            {"id": "wire-schema-valid", "status": "SUCCESS"},
            {"id": "a", "status": "WARNING", "errorMessage": "careful"},
            {"id": "c", "status": "INFO"},
        ]
    )
    assert Outcome(passed=1, behaviour=0, faults=("WARNING a: careful",)) == outcome
    assert not outcome.green


def test_a_check_that_was_left_out_is_a_fault():
    outcome = read_outcome([{"id": "a", "status": "SUCCESS"}, {"id": "b", "status": "SKIPPED"}])
    assert outcome.faults == ("SKIPPED b: ",)
    assert not outcome.green


def test_results_are_read_from_the_folders_of_the_suite(tmp_path):
    folder = tmp_path / "server-tools-list-2026-11-30T19-20-14-741Z"
    folder.mkdir()
    (folder / "checks.json").write_text(json.dumps([{"id": "a", "status": "SUCCESS"}]))
    assert {"tools-list": Outcome(passed=1, behaviour=1)} == read_results(tmp_path, "server")


def test_a_client_scenario_may_lie_in_a_folder_of_its_own(tmp_path):
    for name in ("sse-retry", "auth/basic-cimd"):
        folder = tmp_path / f"{name}-2026-11-30T19-20-14-741Z"
        folder.mkdir(parents=True)
        (folder / "checks.json").write_text("[]")
    assert set(read_results(tmp_path, "client")) == {"sse-retry", "auth/basic-cimd"}
    with pytest.raises(ValueError, match="new way"):
        read_results(tmp_path, "server")


@pytest.mark.parametrize(("said", "green"), [("played to the end\n", True), ("", False)])
def test_a_client_that_fails_after_its_last_check_is_a_fault(tmp_path, said, green):
    folder = tmp_path / "tools_call-2026-11-30T19-20-14-741Z"
    folder.mkdir()
    (folder / "checks.json").write_text(json.dumps([{"id": "a", "status": "SUCCESS"}]))
    (folder / "stdout.txt").write_text(said)
    (folder / "stderr.txt").write_text("ValueError: no")
    outcome = read_results(tmp_path, "client")["tools_call"]
    assert outcome.green is green
    assert green or outcome.faults == ("the client failed: ValueError: no",)


def test_an_unknown_kind_of_folder_is_not_ignored(tmp_path):
    (tmp_path / "tools-list").mkdir()
    (tmp_path / "tools-list" / "checks.json").write_text("[]")
    with pytest.raises(ValueError, match="tools-list"):
        read_results(tmp_path, "client")


def test_each_side_finds_its_scenarios_in_the_listing():
    text = """Required for R (3 scenarios, frozen; run at the R wire):

Server scenarios (test against a server):
  - ping
  - tools-list

Client scenarios (test against a client):
  - auth/basic

Run and reported, but never scored:
  extension (2):
    - auth/dpop [client]
    - tasks [server]
"""
    assert read_listing(text, "server") == ["ping", "tools-list", "tasks"]
    assert read_listing(text, "client") == ["auth/basic", "auth/dpop"]


def test_the_listing_of_everything_says_revisions_in_the_brackets():
    text = """Client scenarios (test against a client):
  - initialize [2025-06-18,2025-11-25]
  - sep-2640-client-no-prefetch [extension]
"""
    assert read_listing(text, "client") == ["initialize", "sep-2640-client-no-prefetch"]
    assert read_listing(text, "server") == []


def test_a_scenario_may_have_only_one_reason():
    entry = {"feature": "prompts", "reason": "none yet", "R": ["ping"]}
    with pytest.raises(ValueError, match="listed twice"):
        part = {"unbuilt": [entry, entry], "hollow": [], "least": {"R": {}}}
        read_baseline({"client": part}, "client", "R")


EXTENSIONS = {
    "json-schema-2020-12-preservation",
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
}
SKILLS = {
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
}


@pytest.mark.parametrize(
    ("revision", "scored", "beside"),
    [("2025-11-25", 18, EXTENSIONS), ("2026-07-28", 32, EXTENSIONS), ("elsewhere", 2, SKILLS)],
)
def test_nothing_of_the_client_is_excused_and_none_of_its_scenarios_may_go(
    revision, scored, beside
):
    document = tomllib.loads((Path(__file__).with_name("baseline.toml")).read_text())
    baseline = read_baseline(document, "client", revision)
    assert (baseline.unbuilt, baseline.hollow) == ({}, {})
    assert beside <= set(baseline.least)
    assert len(set(baseline.least) - beside) == scored
    assert min(baseline.least.values()) > 0
    outcomes = {name: Outcome(passed=99, behaviour=99) for name in baseline.least}
    assert judge("r", baseline, listed=outcomes, outcomes=outcomes, tools=()).problems == ()
    for name in baseline.least:
        rest = {other: outcome for other, outcome in outcomes.items() if other != name}
        assert judge("r", baseline, listed=rest, outcomes=rest, tools=()).problems
        for status in ("WARNING", "SKIPPED", "FAILURE"):
            last = {"id": "y", "status": status}
            worse = read_outcome([{"id": "x", "status": "SUCCESS"}] * 99 + [last])
            found = judge("r", baseline, listed=outcomes, outcomes={**rest, name: worse}, tools=())
            assert found.problems
