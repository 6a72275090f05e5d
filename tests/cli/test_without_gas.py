"""A role, or a command that sends, whose wallet was never given gas says so, and how much it needs."""

import asyncio
from pathlib import Path

import pytest
from eth_account import Account

from ledger.base import Address
from ledger.deployment import Deployment
from ledger.evm import EvmLedger
from ledger.keys import import_key
from node.config import Home, Settings
from node.errors import ConfigError
from node.launch import create_run
from node.membership import membership
from tests.cli.chain import Chain
from tests.cli.command import PASSWORD, command

POOR = Account.create()


async def _run_of_the_poor(chain: Chain) -> int:
    owner = await chain.ledger("owner")
    poor = Address(POOR.address)
    run = await create_run(owner, chain.spec, poor, [poor], 1, [poor], 1)
    await owner.close()
    return run


@pytest.mark.parametrize("words", [("relay",), ("train", "--model", "tiny"), ("validate", "--engine", "scripted")])
def test_a_role_without_gas_ends_at_once_and_says_what_to_send(
    chain: Chain, tmp_path: Path, words: tuple[str, ...]
) -> None:
    import_key(tmp_path / "poor.json", bytes(POOR.key).hex(), PASSWORD, iterations=1)
    run = asyncio.run(_run_of_the_poor(chain))

    answer = command(
        *words, "--wallet", tmp_path / "poor.json", "--run", str(run), "--host", "127.0.0.1", *chain.at(),
        home=tmp_path,
    )  # fmt: skip

    assert answer.code == 2
    assert (
        answer.err.strip()
        .splitlines()[-1]
        .endswith(f"error: {POOR.address} cannot pay gas: send it at least 0.1 ETH of the test network")
    )
    assert "InsufficientNativeBalance" not in answer.err and "libp2p" not in answer.err


ANYBODY = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"  # EIP-55's first example


@pytest.mark.parametrize(
    "words",
    [
        ("faucet",),
        ("run", "create", "--model", "tiny", "--pace", "local", "--trainer", ANYBODY, "--validator", ANYBODY),
        ("deploy", "--out", "OUT"),
    ],
)
def test_a_command_without_gas_says_what_to_send(chain: Chain, tmp_path: Path, words: tuple[str, ...]) -> None:
    import_key(tmp_path / "poor.json", bytes(POOR.key).hex(), PASSWORD, iterations=1)
    named = [str(tmp_path / "out.json") if word == "OUT" else word for word in words]
    where = chain.at()[:2] if "deploy" in words else chain.at()

    answer = command(*named, "--wallet", tmp_path / "poor.json", *where, home=tmp_path)

    assert (answer.code, answer.out) == (2, "")
    assert answer.said.startswith(f"error: {POOR.address} cannot pay gas: send it at least 0.1 ETH of the test network")
    assert not (tmp_path / "out.json").exists()


async def test_a_role_that_has_too_little_gas_is_told_when_it_sends(chain: Chain, tmp_path: Path) -> None:
    poor = Account.create()
    owner = await chain.ledger("owner")
    await owner.transfer_native(Address(poor.address), 700)

    async def connect(account: object) -> EvmLedger:
        assert account is poor
        return await EvmLedger.connect([chain.anvil.rpc_url], Deployment.load(chain.contracts), poor, None)

    settings = Settings(Home(tmp_path), chain.run, host="127.0.0.1")
    with pytest.raises(ConfigError, match=f"{poor.address} cannot pay gas .*holds 700 wei and needs .*0.1 ETH"):
        async with membership(connect, poor, settings) as member:
            await member.ledger.set_endpoint("http://127.0.0.1:8700")
    await owner.close()
