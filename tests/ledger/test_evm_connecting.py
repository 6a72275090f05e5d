"""What `EvmLedger` is opened with: the chain, the contracts and an account, each refused where it is another."""

from dataclasses import replace
from pathlib import Path

import pytest
from eth_account import Account

from ledger.deployment import Deployment
from ledger.devnet import Anvil
from ledger.errors import KeystoreError, NotDeployed, Reverted, Unreachable, WrongChain
from ledger.evm import EvmLedger
from tests.ledger.evm_scene import EvmScene, evm_scene, reader


async def test_another_chain_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    with pytest.raises(WrongChain, match="serves chain 31337, not 84532"):
        await reader(anvil.rpc_url, replace(deployment, chain_id=84532))


async def test_a_second_endpoint_of_another_chain_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    async with Anvil(block_time=None, chain_id=84532) as other:
        with pytest.raises(WrongChain):
            await EvmLedger.connect([anvil.rpc_url, other.rpc_url], deployment, None, None)


async def test_an_address_without_code_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    nowhere = Account.create().address
    for wrong in ({"token": nowhere}, {"staking": nowhere}, {"coordinator": nowhere}):
        with pytest.raises(NotDeployed, match=f"no contract stands at {nowhere}"):
            await reader(anvil.rpc_url, replace(deployment, **wrong))


async def test_other_code_than_this_versions_is_refused(anvil: Anvil, deployment: Deployment) -> None:
    swapped = replace(deployment, staking=deployment.coordinator, coordinator=deployment.staking)
    with pytest.raises(NotDeployed, match="is not the Staking of this version"):
        await reader(anvil.rpc_url, swapped)


async def test_contracts_of_two_deployments_are_refused_together(scene: EvmScene) -> None:
    second = await evm_scene(scene.anvil)
    mixed = replace(scene.deployment, coordinator=second.deployment.coordinator)
    with pytest.raises(NotDeployed, match="staking\\(\\)"):
        await reader(scene.anvil.rpc_url, mixed)


async def test_no_endpoint_and_a_silent_one_are_unreachable(deployment: Deployment) -> None:
    for urls in ([], ["http://127.0.0.1:1"]):
        with pytest.raises(Unreachable):
            await EvmLedger.connect(urls, deployment, None, None)


async def test_a_ledger_without_an_account_reads_and_says_why_it_cannot_write(scene: EvmScene) -> None:
    ledger = await reader(scene.anvil.rpc_url, scene.deployment)
    assert await ledger.run_count() == 1
    with pytest.raises(KeystoreError, match="no wallet"):
        await ledger.claim()
    await ledger.close()


async def test_no_key_is_in_an_error_or_the_journal(scene: EvmScene, tmp_path: Path) -> None:
    ledger = await scene.connect(scene.anvil.accounts[1], tmp_path / "journal")
    await ledger.faucet(1)
    with pytest.raises(Reverted) as refusal:
        await ledger.claim()
    await ledger.close()

    told = repr(refusal.getrepr(showlocals=True))
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())  # noqa: ASYNC240 - a test may block
    key = scene.anvil.accounts[1].key
    assert key.hex() not in told
    assert key not in written
