"""`[rates]`, `[tools."NAME"]` and the limits of load: read, judged, and what comes of them."""

import pytest

from mcp_trio import LoadLimits, Rate, ToolLimits
from mcp_trio.config import SettingsError, parse_settings

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
