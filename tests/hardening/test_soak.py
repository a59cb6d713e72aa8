"""The soak, for as long as the size says."""

from tests.hardening.attackers import is_served
from tests.hardening.soak import soak
from tests.hardening.target import back_to_baseline, size, until


async def test_under_mixed_load_each_call_is_answered_or_given_up_once(target, upstream):
    before = target.footprint()
    kept = upstream.counts().get("/keep", 0)
    told = await soak(target, upstream, size(15, 600))
    assert told["asked"] == told["answered"] + told["given up"]
    assert told["answered"] > 50
    assert told["given up"] > 5
    # The other end: what was answered was done, and nothing was done twice.
    assert told["answered keep"] <= upstream.counts()["/keep"] - kept <= told["asked keep"]
    await until(lambda: upstream.counts().get("slow now", 0) == 0)
    await is_served(target)
    await back_to_baseline(target, before)
