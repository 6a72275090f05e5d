"""One chain for all commands that ask one, whose run has begun; a disk that can be full."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ledger.base import Version
from ledger.devnet import Anvil
from tests.cli.chain import Chain, prepared
from tests.node.small_disk import disk

__all__ = ["disk"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chain]:
    """It mines what is sent and nothing else; version 0 is published."""
    async with Anvil(block_time=None) as anvil:
        made = await prepared(anvil, tmp_path_factory.mktemp("chain"))
        trainer = await made.ledger("trainer")
        await trainer.publish_checkpoint(made.run, Version(0), made.root)
        await trainer.close()
        yield made
