"""The table of revisions: order, names, and the properties others ask for."""

from __future__ import annotations

import itertools

import pytest

from mcp_trio.wire.revisions import (
    ASSUMED_OVER_HTTP,
    BY_DATE,
    HANDSHAKE,
    REVISIONS,
    STATELESS,
    Revision,
)

DATES = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


def test_there_are_five_revisions_newest_first() -> None:
    assert [revision.date for revision in REVISIONS] == DATES
    assert list(BY_DATE) == DATES
    assert [str(revision) for revision in REVISIONS] == DATES


def test_revisions_are_compared_by_age_both_ways() -> None:
    for newer, older in itertools.combinations(REVISIONS, 2):
        assert newer >= older
        assert older < newer
        assert not newer < older
        assert not older >= newer
    for revision in REVISIONS:
        assert revision >= revision  # noqa: PLR0124 - the very same one
        assert not revision < revision  # noqa: PLR0124


def test_one_revision_needs_no_handshake_and_four_do() -> None:
    assert [revision.date for revision in STATELESS] == DATES[:1]
    assert [revision.date for revision in HANDSHAKE] == DATES[1:]


def test_what_is_assumed_over_http_has_no_version_header_itself() -> None:
    assert ASSUMED_OVER_HTTP.date == "2025-03-26"  # V14
    assert not ASSUMED_OVER_HTTP.version_header


@pytest.mark.parametrize(
    ("property_", "dates"),
    [
        ("stateless", DATES[:1]),
        ("batches", DATES[3:4]),
        ("version_header", DATES[:3]),
        ("resumable", DATES[1:4]),
        ("priming", DATES[1:2]),
    ],
)
def test_a_property_holds_in_the_revisions_of_the_version_matrix(
    property_: str, dates: list[str]
) -> None:
    assert [r.date for r in REVISIONS if getattr(r, property_)] == dates


def test_a_missing_resource_has_the_code_of_its_revision() -> None:
    assert [revision.resource_not_found for revision in REVISIONS] == [-32602] + [-32002] * 4  # O2


def test_a_revision_is_itself_and_no_other_of_the_same_name() -> None:
    assert Revision(date="2026-07-28", age=4) != REVISIONS[0]
