"""Nodes that announce addresses which this node does not connect to: said at once, and before anything is staked."""

import asyncio

import pytest
from eth_account.signers.local import LocalAccount

from ledger.base import Address, Ledger
from node.config import Home, Settings
from node.engines.choice import EngineChoice
from node.roles.askable import OutOfReach, askable
from node.runtime import run_worker
from tests.roles.network import Build
from tests.roles.stage import key, until

PRIVATE, PUBLIC = ("http://127.0.0.1:8700", "http://10.1.2.3:8700"), "http://203.0.112.7:8700"
WARNING = (
    "all nodes that may hold the weights announce private addresses, so none is asked: "
    "on a local network, add --allow-private"
)


def named(caplog: pytest.LogCaptureFixture) -> list[list[str]]:
    """The URLs of each such warning."""
    return [each.fields["urls"] for each in caplog.records if each.getMessage() == WARNING]  # type: ignore[attr-defined]


def test_it_is_said_once_and_again_when_the_urls_are_others(caplog: pytest.LogCaptureFixture) -> None:
    sources = OutOfReach(allow_private=False)

    for urls in (PRIVATE, PRIVATE[::-1], PRIVATE[:1], PRIVATE[:1]):
        sources.look(urls)

    assert named(caplog) == [sorted(PRIVATE), [PRIVATE[0]]]


@pytest.mark.parametrize(
    ("urls", "allow_private"),
    [((), False), ((*PRIVATE, PUBLIC), False), (PRIVATE, True), (["http://a.example:1"], False)],
)
def test_nothing_is_said_where_somebody_may_be_asked_or_nobody_is_there(
    caplog: pytest.LogCaptureFixture, urls: list[str], allow_private: bool
) -> None:
    OutOfReach(allow_private).look(urls)

    assert named(caplog) == []


def test_an_announced_text_that_is_no_url_is_not_asked() -> None:
    assert askable(["gopher://x", "http://a b", PUBLIC, *PRIVATE], allow_private=False) == [PUBLIC]


async def test_who_joins_a_local_run_without_permission_is_told_so_before_anything_is_staked(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    network = await build(validators=1)
    validator = await network.validator()
    await validator.member.sync()
    wallet, node = key(100), key(101)
    network.chain.give_native(Address(wallet.address), 10**18)
    caplog.set_level("INFO")

    async def connect(account: LocalAccount) -> Ledger:
        return network.connect(account)

    settings = Settings(Home(network.folder / "home"), network.run, host="127.0.0.1", allow_private=False)
    joining = asyncio.create_task(run_worker(settings, connect, wallet, node, EngineChoice("scripted")))
    await until(lambda: "serving" in caplog.messages[-1:], "it goes on")

    assert not joining.done()
    assert named(caplog) == [[validator.member.record.endpoints[validator.account.address].partition("#")[0]]]
    assert caplog.messages.index(WARNING) < caplog.messages.index("stake allocated")
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
