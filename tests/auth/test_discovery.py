"""From a server to its authorization server: what is asked, in which order, and what is refused."""

import pytest

from mcp_trio.auth.discovery import find, resource_candidates, server_candidates
from mcp_trio.errors import UnauthorizedError
from mcp_trio.framing.challenge import Challenge
from tests.auth.world import ASM, OIDC, PRM, World, by_hand


def told(url):
    return Challenge("Bearer", {"resource_metadata": url})


def found(world, challenge=None, preferred=None):
    return by_hand(find(world.url, challenge, preferred), world)


def test_a_challenge_says_where_the_metadata_are_and_nowhere_else_is_looked():
    world = World()
    world.pages["https://mcp.example/custom.json"] = world.resource
    place = found(world, told("https://mcp.example/custom.json"))
    assert place.server.token_endpoint == "https://as.example/token"
    assert world.asked == [
        ("GET", "https://mcp.example/custom.json"),
        ("GET", f"https://as.example{ASM}"),
    ]


def test_a_challenge_that_leads_nowhere_is_an_error_and_no_reason_to_guess():
    world = World()
    with pytest.raises(UnauthorizedError, match="there are no protected-resource metadata"):
        found(world, told("https://mcp.example/gone"))
    assert world.paths == ["GET /gone"]


def test_without_it_the_path_is_asked_first_and_then_the_root():
    world = World()
    assert found(world).resource == "https://mcp.example/mcp"
    assert world.paths[0] == f"GET {PRM}/mcp"
    world = World()
    world.pages[f"https://mcp.example{PRM}"] = world.pages.pop(f"https://mcp.example{PRM}/mcp")
    assert found(world).resource == "https://mcp.example/mcp"
    assert world.paths[:2] == [f"GET {PRM}/mcp", f"GET {PRM}"]


def test_candidates_are_listed_once():
    assert resource_candidates("https://h/") == ["https://h/.well-known/oauth-protected-resource"]
    assert server_candidates("https://as/") == [f"https://as{ASM}", f"https://as{OIDC}"]
    assert server_candidates("https://as/t/") == [
        f"https://as{ASM}/t",
        f"https://as{OIDC}/t",
        f"https://as/t{OIDC}",
    ]


@pytest.mark.parametrize(
    "at",
    [f"https://as.example{ASM}/t", f"https://as.example{OIDC}/t", f"https://as.example/t{OIDC}"],
)
def test_an_issuer_with_a_path_is_looked_for_in_three_places(at):
    world = World()
    world.resource["authorization_servers"] = ["https://as.example/t"]
    world.publish("https://as.example/t", at)
    assert found(world).server.issuer == "https://as.example/t"
    assert world.asked[-1] == ("GET", at)
    assert ("GET", f"https://as.example{ASM}") not in world.asked


@pytest.mark.parametrize(
    "said", ["https://attacker.example", "https://as.example/", "HTTPS://as.example", None, 7]
)
def test_metadata_of_another_issuer_are_refused_to_the_letter_and_both_are_named(said):
    world = World()
    world.metadata["issuer"] = said
    with pytest.raises(UnauthorizedError) as caught:
        found(world)
    assert "https://as.example are those of" in str(caught.value)
    assert said is None or said == 7 or said in str(caught.value)


def test_an_issuer_with_a_slash_is_one_with_a_slash():
    world = World()
    world.resource["authorization_servers"] = ["https://as.example/"]
    world.metadata["issuer"] = "https://as.example/"
    assert found(world).server.issuer == "https://as.example/"


@pytest.mark.parametrize("resource", ["https://mcp.example", "https://mcp.example/mcp/"])
def test_a_resource_is_called_as_it_calls_itself(resource):
    world = World()
    world.resource["resource"] = resource
    assert found(world).resource == resource


def test_metadata_about_another_resource_are_refused_and_both_are_named():
    world = World()
    world.resource["resource"] = "https://evil.example/mcp"
    with pytest.raises(
        UnauthorizedError, match=r"https://evil.example/mcp.*https://mcp.example/mcp"
    ):
        found(world)
    assert world.paths == [f"GET {PRM}/mcp"]


@pytest.mark.parametrize("issuer", ["http://as.example", "https://localhost", "ftp://as.example"])
def test_an_issuer_that_must_not_be_visited_is_not(issuer):
    world = World()
    world.resource["authorization_servers"] = [issuer]
    with pytest.raises(UnauthorizedError):
        found(world)
    assert world.paths == [f"GET {PRM}/mcp"]


@pytest.mark.parametrize(
    "name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"]
)
def test_an_endpoint_that_must_not_be_visited_spoils_the_metadata(name):
    world = World()
    world.metadata[name] = "https://127.0.0.1/latest/meta-data"
    with pytest.raises(UnauthorizedError, match="this machine"):
        found(world)


def test_redirects_are_followed_where_they_may_lead_and_not_for_ever():
    world = World()
    world.pages[f"https://mcp.example{PRM}/mcp"] = "https://docs.example/prm"
    world.pages["https://docs.example/prm"] = {
        "resource": world.url,
        "authorization_servers": [world.issuer],
    }
    assert found(world).server.issuer == world.issuer
    world.pages["https://docs.example/prm"] = "https://127.0.0.1/"
    with pytest.raises(UnauthorizedError, match="this machine"):
        found(world)
    world.pages["https://docs.example/prm"] = "https://docs.example/prm"
    with pytest.raises(UnauthorizedError, match="too often"):
        found(world)


@pytest.mark.parametrize("status", [500, 503, 301])
def test_a_server_that_is_broken_is_no_server_without_metadata(status):
    world = World()
    world.pages[f"https://mcp.example{PRM}/mcp"] = status
    with pytest.raises(UnauthorizedError, match=str(status)):
        found(world)
    assert len(world.asked) == 1


def test_the_issuer_we_know_is_preferred_among_several():
    world = World()
    world.resource["authorization_servers"] = ["https://other.example", world.issuer]
    world.publish("https://other.example")
    assert found(world).server.issuer == "https://other.example"
    assert found(world, preferred=world.issuer).server.issuer == world.issuer


def test_a_server_of_the_first_revision_is_its_own_authorization_server():
    world = World()
    del world.pages[f"https://mcp.example{PRM}/mcp"]
    world.publish("https://mcp.example/", f"https://mcp.example{ASM}")
    place = found(world)
    assert (place.server.issuer, place.resource) == ("https://mcp.example/", world.url)
    assert world.paths == [f"GET {PRM}/mcp", f"GET {PRM}", f"GET {ASM}"]


def test_and_has_the_usual_endpoints_if_it_publishes_nothing():
    world = World()
    del world.pages[f"https://mcp.example{PRM}/mcp"]
    place = found(world)
    assert place.server.authorization_endpoint == "https://mcp.example/authorize"
    assert place.server.token_endpoint == "https://mcp.example/token"
    assert place.server.registration_endpoint == "https://mcp.example/register"


def test_but_not_in_the_clear():
    world = World(server="http://mcp.example", url="http://mcp.example/mcp")
    world.pages.clear()
    with pytest.raises(UnauthorizedError, match="not https"):
        found(world)


@pytest.mark.parametrize(
    "document", [[], "text", {"resource": 1}, {"resource": "https://mcp.example/mcp"}]
)
def test_metadata_that_are_none_are_refused(document):
    world = World()
    world.pages[f"https://mcp.example{PRM}/mcp"] = document if document != "text" else ["text"]
    with pytest.raises(UnauthorizedError):
        found(world)


def test_an_authorization_server_without_metadata_or_token_endpoint_is_refused():
    world = World()
    del world.metadata["token_endpoint"]
    with pytest.raises(UnauthorizedError, match="no token endpoint"):
        found(world)
    del world.pages[f"{world.issuer}{ASM}"]
    with pytest.raises(UnauthorizedError, match="publishes no metadata"):
        found(world)
