"""`[rates]`, `[tools."NAME"]` and the limits of load: read, judged, and what comes of them."""

import re

import attrs
import pytest

from mcp_trio import LoadLimits, Rate, ToolLimits
from mcp_trio.config import LimitsSection, SettingsError, parse_settings
from tests.programs import ROOT

CATALOG = {"registry": "r.sqlite"}


def read(**sections: object):
    return parse_settings({"catalog": CATALOG, **sections})


def test_without_a_word_one_caller_may_have_half_of_everything_and_come_as_often_as_he_likes():
    assert read().load == LoadLimits(
        max_in_flight=1000, max_in_flight_per_caller=500, max_listeners_per_caller=1000
    )


def test_rates_and_tools_reach_the_service():
    load = read(
        server={"max_in_flight": 50},
        limits={"queue_length": 20, "queue_timeout": 2, "max_in_flight_per_session": 5},
        rates={"all": {"per_minute": 6000}, "caller": {"per_minute": 600, "burst": 50}},
        tools={
            "crm_*": {"timeout": 5, "rate": {"per_minute": 60, "burst": 5, "per_caller": True}},
            "report": {"timeout": 300, "max_in_flight": 2},
        },
    ).load
    assert (load.max_in_flight, load.queue_length, load.queue_timeout) == (50, 20, 2)
    assert load.max_in_flight_per_session == 5
    assert load.rate == Rate(per_minute=6000)
    assert load.rate_per_caller == Rate(per_minute=600, burst=50)
    crm = Rate(per_minute=60, burst=5, per_caller=True)
    assert load.tools == {
        "crm_*": ToolLimits(timeout=5, rate=crm),
        "report": ToolLimits(timeout=300, max_in_flight=2),
    }


TOGETHER = {
    "server": {"max_in_flight": 50, "max_connections": 10, "max_sessions": 6, "max_body": 1000},
    "limits": {
        "max_listeners": 9,
        "queue_length": 20,
        "max_total_body": 8000,
        "max_total_websocket_bytes": 6000,
    },
    "rates": {"all": {"per_minute": 6000, "burst": 90}, "caller": {"per_minute": 60, "burst": 5}},
    "tools": {
        "shared": {"max_in_flight": 2, "rate": {"per_minute": 30}},
        "own": {"timeout": 3, "rate": {"per_minute": 30, "burst": 7, "per_caller": True}},
    },
}


def test_what_is_of_all_together_is_shared_out_among_the_workers_and_what_is_of_one_is_not():
    one = read(**TOGETHER)
    four = read(**{**TOGETHER, "server": {**TOGETHER["server"], "workers": 4}})
    load = four.load
    assert (load.max_in_flight, load.max_listeners, load.queue_length) == (13, 3, 5)
    assert load.rate == Rate(per_minute=1500, burst=23)
    assert load.tools["shared"] == ToolLimits(max_in_flight=1, rate=Rate(per_minute=7.5))
    assert load.tools["own"] == one.load.tools["own"]
    for name in ("rate_per_caller", "max_in_flight_per_caller", "max_listeners_per_caller"):
        assert getattr(load, name) == getattr(one.load, name)
    sockets = four.server.serving_settings(four.limits)
    assert (sockets.max_connections, sockets.max_total_websocket_bytes) == (3, 1500)
    options = four.server.http_options(four.limits)
    assert (options.max_sessions, options.max_total_body) == (2, 2000)
    whole = one.server.serving_settings(one.limits)
    assert sockets.max_connections_per_address == whole.max_connections_per_address


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 64])
def test_one_caller_never_has_all_that_a_worker_has_for_everybody(workers: int):
    settings = read(server={"workers": workers})
    load = settings.load
    assert load.max_in_flight_per_caller is not None
    assert load.max_listeners_per_caller is not None
    assert load.max_in_flight_per_caller <= (load.max_in_flight + 1) // 2
    assert load.max_listeners_per_caller <= (load.max_listeners + 1) // 2
    sockets = settings.server.serving_settings(settings.limits)
    assert sockets.max_connections_per_address <= (sockets.max_connections + 1) // 2
    # Who sets no limit of one, because all come by the same address, has none in a worker either.
    alone = read(
        server={"workers": workers, "max_connections": 300},
        limits={"max_connections_per_address": 300},
    )
    assert alone.server.serving_settings(alone.limits).max_connections_per_address == 300


def test_a_limit_may_be_larger_than_any_float():
    load = read(server={"workers": 3, "max_in_flight": 10**400}, limits={"max_listeners": 10**400})
    assert load.load.max_in_flight * 3 == 10**400 + 2
    assert load.load.max_listeners * 3 == 10**400 + 2


def test_each_worker_has_room_for_one_message_whatever_its_share():
    settings = read(
        server={"workers": 64, "max_body": 1000},
        limits={"max_total_body": 8000, "max_total_websocket_bytes": 8000},
    )
    assert settings.server.http_options(settings.limits).max_total_body == 1000
    sockets = settings.server.serving_settings(settings.limits)
    assert sockets.max_total_websocket_bytes == 1000


def test_every_limit_is_told_in_the_documentation_with_what_becomes_of_it_among_workers():
    page = (ROOT / "docs" / "load.md").read_text()
    _, _, table = page.partition("## Several processes")
    told = set(re.findall(r"`(?:\w+\.)?(max_\w+|queue_length)`", table.partition("## ")[0]))
    whole = {field.name for field in attrs.fields(LimitsSection)}
    assert {name for name in whole if "_per_" in name or "total" in name} - told == {
        "max_requests_per_connection"
    }
    assert {"max_listeners", "queue_length", "max_connections", "max_sessions"} <= told


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"rates": {"all": {"burst": 5}}}, "rates.all.per_minute: missing key"),
        (
            {"rates": {"caller": {"per_minute": 0}}},
            "rates.caller.per_minute: must be greater than 0",
        ),
        ({"rates": {"per_minute": 5}}, "rates.per_minute: unknown key"),
        ({"tools": {"x": {"timeout": -1}}}, "tools.x.timeout: must be greater than 0"),
        ({"tools": {"x": {"rate": 5}}}, "tools.x.rate: must be a table"),
        (
            {"tools": {"a b": {"rate": {"per_minute": 1, "burst": 0}}}},
            "tools.'a b'.rate.burst: must be greater than 0",
        ),
        ({"limits": {"queue_length": -1}}, "limits.queue_length: must be 0 or more"),
    ],
)
def test_faults_are_told_with_their_keys(section, told):
    with pytest.raises(SettingsError) as caught:
        read(**section)
    assert told in str(caught.value)
