"""`WWW-Authenticate`: what is read out of it, and written into it."""

import pytest

from mcp_trio.framing.challenge import bearing, read_challenges, write_challenge

READ = [
    ("Bearer", [("Bearer", {})]),
    ("bearer realm=x", [("bearer", {"realm": "x"})]),
    (
        'Bearer resource_metadata="https://a/b?c=d,e", Scope="one two"',
        [("Bearer", {"resource_metadata": "https://a/b?c=d,e", "scope": "one two"})],
    ),
    ('Bearer a = "q\\"u\\\\o"', [("Bearer", {"a": 'q"u\\o'})]),
    (
        'Basic realm="x", DPoP algs="ES256", error=invalid_token, Bearer scope="s"',
        [
            ("Basic", {"realm": "x"}),
            ("DPoP", {"algs": "ES256", "error": "invalid_token"}),
            ("Bearer", {"scope": "s"}),
        ],
    ),
    ("Negotiate a68token==, Bearer a=b", [("Negotiate", {}), ("Bearer", {"a": "b"})]),
    ("Negotiate, Bearer", [("Negotiate", {}), ("Bearer", {})]),
    ('Bearer a="1", a="2"', [("Bearer", {"a": "1"})]),
    ('Bearer a="never ends', [("Bearer", {})]),
    ("a=b", []),
    ("", []),
    (",,,", []),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_challenges_are_read_as_they_are_written(text, expected):
    assert [(c.scheme, dict(c.parameters)) for c in read_challenges([text])] == expected


def test_several_fields_are_one_list_and_a_bad_one_spoils_no_other():
    found = read_challenges(["=", "Bearer a=b", "Basic"])
    assert [challenge.scheme for challenge in found] == ["Bearer", "Basic"]


def test_dpop_is_answered_before_bearer_and_nothing_else_is():
    assert bearing(read_challenges(["bearer a=b, dpop c=d"])).scheme == "dpop"
    assert bearing(read_challenges(["Basic, BEARER x=y"])).parameters == {"x": "y"}
    assert bearing(read_challenges(["Basic, Digest"])) is None


def test_scopes_keep_their_order_and_stand_once():
    (challenge,) = read_challenges(['Bearer scope="b a  b"'])
    assert challenge.scopes == ("b", "a")


def test_a_field_of_any_length_is_read_in_linear_time():
    read_challenges(["Bearer " + 'a="' * 200_000, "x " * 200_000, "\\" * 200_000])


@pytest.mark.parametrize(
    ("parameters", "written"),
    [
        ({}, "Bearer"),
        ({"scope": "a b", "error": "x"}, 'Bearer scope="a b", error="x"'),
        ({"realm": 'a "b" \\'}, r'Bearer realm="a \"b\" \\"'),
        ({"realm": "a\r\nSet-Cookie: ü"}, 'Bearer realm="a??Set-Cookie: ?"'),
    ],
)
def test_what_is_written_is_one_header_field_that_can_be_read(parameters, written):
    assert write_challenge("Bearer", parameters) == written
    (challenge,) = read_challenges([written])
    assert list(challenge.parameters) == list(parameters)
