"""Getting a node key ready: only what is missing is done, and what cannot be done is said with what to do."""

from typing import Any

import pytest

from ledger.base import Address
from ledger.memory import MemoryLedger
from ledger.messages import Domain, NodeAuthorization, sign
from node.errors import ConfigError
from node.roles.gas import GAS_FLOOR_WEI, GAS_TOP_UP_WEI
from node.roles.registration import Registration, stake_per_node
from tests.roles.network import Build, Network
from tests.roles.stage import Watched, key

WALLET, NODE = key(500), key(501)
WRITES = {"faucet", "stake", "allocate", "authorize_node", "transfer_native"}


async def registration(network: Network, sent: list[str], coins: int = 10**18) -> Registration:
    network.chain.give_native(Address(WALLET.address), coins)
    inner = MemoryLedger(network.chain, WALLET)

    def note(name: str, _: tuple[Any, ...]) -> None:
        if name in WRITES:
            sent.append(name)

    return Registration(Watched(inner, before=note), NODE, await inner.run(network.run))  # type: ignore[arg-type]


async def test_a_new_node_is_authorised_backed_and_given_gas(build: Build) -> None:
    network, sent = await build(validators=1), list[str]()
    ready = await registration(network, sent)
    await ready.ensure()

    economics = network.spec.economics
    wanted = economics.max_open * (int(economics.penalty) + int(economics.submission_bond))
    assert stake_per_node(ready.run.params) == wanted
    assert network.chain.staking.providers[Address(NODE.address)] == WALLET.address
    assert network.chain.staking.allocation(network.run, Address(NODE.address)).amount == wanted
    assert network.chain.native[Address(NODE.address)] == GAS_TOP_UP_WEI
    assert sorted(sent) == sorted(WRITES)


async def test_what_a_killed_process_sent_is_waited_for_before_anything_is_looked_at(build: Build) -> None:
    network, asked = await build(validators=1), list[str]()
    inner = MemoryLedger(network.chain, WALLET)
    network.chain.give_native(Address(WALLET.address), 10**18)
    watched = Watched(inner, before=lambda name, _: asked.append(name))

    await Registration(watched, NODE, await inner.run(network.run)).ensure()  # type: ignore[arg-type]

    assert asked[0] == "finish_earlier"
    assert asked.count("finish_earlier") == 1


async def test_nothing_is_sent_when_nothing_is_missing(build: Build) -> None:
    network, sent = await build(validators=1), list[str]()
    ready = await registration(network, sent)
    await ready.ensure()
    sent.clear()

    await ready.ensure()

    assert sent == []


async def test_only_what_is_missing_is_done_when_a_slash_took_part_of_the_stake(build: Build) -> None:
    network, sent = await build(validators=1), list[str]()
    ready = await registration(network, sent)
    await ready.ensure()
    await MemoryLedger(network.chain, WALLET).unstake(network.run, Address(NODE.address), 7)
    await MemoryLedger(network.chain, WALLET).faucet(3)
    sent.clear()

    await ready.ensure()

    assert sent == ["faucet", "stake", "allocate"]
    assert network.chain.staking.allocation(network.run, Address(NODE.address)).amount == stake_per_node(
        ready.run.params
    )


async def test_gas_is_topped_up_only_below_the_floor(build: Build) -> None:
    network, sent = await build(validators=1), list[str]()
    ready = await registration(network, sent)
    await ready.ensure()
    network.chain.native[Address(NODE.address)] = GAS_FLOOR_WEI
    await ready.ensure()
    assert network.chain.native[Address(NODE.address)] == GAS_FLOOR_WEI

    network.chain.native[Address(NODE.address)] = GAS_FLOOR_WEI - 1
    await ready.ensure()
    assert network.chain.native[Address(NODE.address)] == GAS_FLOOR_WEI - 1 + GAS_TOP_UP_WEI


async def test_the_address_and_the_amount_are_named_when_the_wallet_has_no_gas(build: Build) -> None:
    network, sent = await build(validators=1), list[str]()
    ready = await registration(network, sent, coins=2 * GAS_TOP_UP_WEI - 1)

    with pytest.raises(ConfigError, match=rf"{WALLET.address} cannot pay gas.*0\.1 ETH"):
        await ready.ensure()
    assert sent == []  # found out before anything was spent


async def test_the_faucet_is_named_when_tokens_are_missing_and_it_gives_none(build: Build) -> None:
    network, sent = await build(validators=1), list[str]()
    ready = await registration(network, sent)
    network.chain.token._cap = 0  # a chain whose faucet is closed

    with pytest.raises(ConfigError, match=r"staking needs [0-9.,]+ tSTAKE, 0x.* has 0 tSTAKE.*intellect-node faucet"):
        await ready.ensure()


async def test_a_node_of_another_wallet_is_refused(build: Build) -> None:
    network, sent = await build(validators=1), list[str]()
    other = MemoryLedger(network.chain, key(502))
    domain = Domain(other.chain_id, other.staking)
    message = NodeAuthorization(other.account, Address(NODE.address), 0, 2**40)
    await other.authorize_node(Address(NODE.address), 2**40, sign(NODE, domain, message))

    with pytest.raises(ConfigError, match=f"already works for {other.account}: use another wallet"):
        await (await registration(network, sent)).ensure()
