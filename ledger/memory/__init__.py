"""The contracts' rules in plain Python, and the `Ledger` over them: for tests, demos and simulations."""

from ledger.memory.chain import MemoryChain
from ledger.memory.ledger import MemoryLedger

__all__ = ["MemoryChain", "MemoryLedger"]
