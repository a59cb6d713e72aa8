"""For people who test code that uses, or extends, this package.

A peer that says exactly what a script tells it, lines that go wrong on purpose, a way to cancel
at every step, and the batteries that every `Transport` and every `Registry` have to pass.
"""

from mcp_trio.testing.battery import check_transport as check_transport
from mcp_trio.testing.cancelling import cancelled_after as cancelled_after
from mcp_trio.testing.faults import Fault as Fault
from mcp_trio.testing.faults import Faults as Faults
from mcp_trio.testing.faults import FaultyStream as FaultyStream
from mcp_trio.testing.faults import FaultyTransport as FaultyTransport
from mcp_trio.testing.registries import PublishedRegistry as PublishedRegistry
from mcp_trio.testing.registries import check_registry as check_registry
from mcp_trio.testing.scripted import ScriptedPeer as ScriptedPeer
from mcp_trio.transports.memory import MemoryTransport as MemoryTransport
