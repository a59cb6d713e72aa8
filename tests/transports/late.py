"""A server's end that is there once the client has connected, which is what its pump does."""

import trio


class Late:
    """Waits for the end that an HTTP request brings, and then is it."""

    def __init__(self):
        self.end = None
        self._there = trio.Event()

    def has_come(self, end):
        self.end = end
        self._there.set()

    async def come(self):
        """Wait for the end and give it."""
        await self._there.wait()
        return self.end

    async def send(self, envelope):
        await (await self.come()).send(envelope)

    async def receive(self):
        return await (await self.come()).receive()

    def abandon(self, request_id):
        return self.end.abandon(request_id)

    async def pump(self):
        await (await self.come()).pump()

    async def aclose(self):
        # A client that was closed before it had connected has no peer.
        if self.end is not None:
            await self.end.aclose()
