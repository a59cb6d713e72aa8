"""What a handler sees: here, that telling the client something always lets others run."""

import pytest
import trio
import trio.testing

from mcp_trio import Context
from mcp_trio.wire import REVISIONS


class NobodyListens:
    """An exchange that notes everything without waiting."""

    def __init__(self):
        self.told = []

    async def notify(self, method, params):
        self.told.append(params)

    async def keep_alive(self):
        pass


def context(*, token=None, level=None, revision=REVISIONS[0]):
    return Context(
        request_id=1,
        method="tools/call",
        revision=revision,
        exchange=NobodyListens(),
        scope=trio.CancelScope(),
        progress_token=token,
        log_level=lambda: level,
    )


@pytest.mark.parametrize(("token", "level"), [(None, None), (1, "debug")])
async def test_a_handler_that_only_reports_can_be_cancelled_whoever_listens(token, level):
    handler = context(token=token, level=level)
    for say in (
        lambda: handler.progress(1),
        lambda: handler.progress(1),  # which does not grow
        lambda: handler.log("info", "text"),
    ):
        with trio.testing.assert_checkpoints():
            await say()
        with trio.CancelScope() as scope:
            scope.cancel()
            await say()
        assert scope.cancelled_caught


async def test_a_level_that_does_not_exist_is_an_error_that_names_those_that_do():
    with pytest.raises(ValueError, match=r"one of debug, info, .*emergency"):
        await context(level="debug").log("loud", "text")


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_progress_has_a_message_since_there_are_such(revision):
    handler = context(token="t", revision=revision)
    await handler.progress(1, 2, "half")
    told = {"progressToken": "t", "progress": 1, "total": 2}
    assert handler.exchange.told == [
        told if revision is REVISIONS[-1] else {**told, "message": "half"}
    ]
