"""Suggestions for arguments: `python examples/completion.py` (stdio)."""

from collections.abc import Mapping

import trio

import mcp_trio
from mcp_trio.wire.completion import Completion

server = mcp_trio.MCPServer("completion", version="1.0.0")
CITIES = {"fr": ["Paris", "Lyon", "Lille"], "it": ["Rome", "Milan"]}


@server.prompt
def guide(country: str, city: str) -> str:
    """Plan a visit."""
    return f"What should I see in {city}, {country}?"


@server.resource("city:///{city}")
def facts(city: str) -> str:
    """Facts about a city."""
    return f"{city} is a city"


@server.completion("country", prompt="guide")
def suggest_countries(typed: str, _known: Mapping[str, str]) -> list[str]:
    """Suggest what begins so, best first."""
    return [country for country in CITIES if country.startswith(typed)]


@server.completion("city", prompt="guide")
@server.completion("city", resource="city:///{city}")
async def suggest_cities(typed: str, known: Mapping[str, str]) -> Completion:
    """Suggest cities of the country that was chosen already, if one was."""
    await trio.lowlevel.checkpoint()
    countries = [known["country"]] if "country" in known else list(CITIES)
    found = [c for name in countries for c in CITIES.get(name, []) if c.startswith(typed)]
    return Completion(values=found[:2], total=len(found), has_more=len(found) > 2)


if __name__ == "__main__":
    server.run()
