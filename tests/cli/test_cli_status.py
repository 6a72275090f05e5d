"""`intellect-node status` as its user meets it: a real chain, a real process, what it prints."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from eth_account import Account
from eth_account.signers.local import LocalAccount

from ledger import keys
from ledger.base import Address, Digest, Fault, RunId, Version
from ledger.deploy import deploy
from ledger.devnet import Anvil
from ledger.evm import EvmLedger
from ledger.following import Patience
from ledger.messages import Domain
from ledger.messages import sign as sign_message
from node.launch import Plan, build_spec, create_run, default_pot
from node.models.resolve import resolve
from node.roles.registration import Registration

SECRET = "correct horse"
ZERO = Digest(bytes(32))


def wallet(home: Path) -> tuple[LocalAccount, LocalAccount]:
    """A wallet with its node key, as `join` leaves them."""
    path = home / "wallets" / "mine.json"
    keys.create(path, SECRET, 2**10)
    keys.create(keys.node_key_path(path), SECRET, 2**10)
    return keys.unlock(path, SECRET), keys.unlock(keys.node_key_path(path), SECRET)


def asked(anvil: Anvil, contracts: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    common = ["--wallet", "mine", "--run", "1", "--rpc", anvil.rpc_url, "--deployment", str(contracts), "--no-ask"]
    return subprocess.run(
        [sys.executable, "-m", "cli", "status", *common, *words], capture_output=True, text=True,
        stdin=subprocess.DEVNULL, env={**os.environ, "INTELLECT_NODE_HOME": str(home), "TZ": "UTC"}, check=False,
    )  # fmt: skip


async def test_a_reported_submission_is_shown_with_its_votes_and_what_the_wallet_has(tmp_path: Path) -> None:
    spec = build_spec("tiny", resolve("tiny", lambda _: None, tmp_path / "models"), Plan("shown", max_open=1))
    provider, node = wallet(tmp_path / "home")
    owner, *others = (Account.from_key(number.to_bytes(32)) for number in range(1, 5))
    async with Anvil(block_time=None) as anvil:
        deployment = await deploy(anvil.rpc_url, anvil.accounts[0], 86_400)
        deployment.save(tmp_path / "run.json")

        async def connect(account: LocalAccount) -> EvmLedger:
            await anvil.fund(account.address, 10**18)
            return await EvmLedger.connect([anvil.rpc_url], deployment, account, None, Patience(poll=0.01))

        ledgers = [await connect(account) for account in (owner, others[0], provider, node)]
        chain, validator, paying, working = ledgers
        named = [Address(other.address) for other in others]
        run = await create_run(chain, spec, Address(owner.address), named, 2, (), default_pot(spec))
        await chain.publish_checkpoint(run, Version(0), ZERO)
        await Registration(paying, node, await paying.run(run)).ensure()
        commitment = await committed(working, run, units=5_000_000)
        fault = Fault(run, commitment, 3, 8, ZERO)
        domain = Domain(chain.chain_id, chain.coordinator)
        await validator.report(run, [fault], [sign_message(others[0], domain, fault)])

        read = await asyncio.to_thread(asked, anvil, tmp_path / "run.json", tmp_path / "home", "--json")
        shown = await asyncio.to_thread(asked, anvil, tmp_path / "run.json", tmp_path / "home")
        for ledger in ledgers:
            await ledger.close()

    stake = int(spec.economics.penalty) + int(spec.economics.submission_bond)
    found = json.loads(read.stdout)
    (row,) = found["submissions"]
    assert (found["roles"], found["allocated"], found["locked"]) == (["worker"], str(stake), str(stake))
    assert (row["state"], row["check"], row["leaf"], row["votes"], row["quorum"]) == ("faulted", "toploc", 3, 1, 2)
    assert (row["commitment"], row["units"], row["reward"]) == ("0x" + commitment.hex(), 5_000_000, "0")
    until = row["due"] + 20  # the local pace's `confirm`, from when the audit is due: the report came before
    assert row["why"] == f"reported: 1 of 2 votes for toploc on rollout 3; void without a quorum by block time {until}"
    assert found["sources"][1].startswith("no files of these keys in this run on this machine")
    assert (read.stderr, shown.returncode) == ("", 0)
    assert f"stake allocated {stake / 10**18:,.2f} tokens" in " ".join(shown.stdout.split())
    assert f"version 0 slot 0  0x{commitment.hex()[:10]}…" in shown.stdout and "faulted" in shown.stdout
    assert "1 of 2 votes for toploc on rollout 3; void without a quorum by 20" in shown.stdout
    assert "signed, not final: none" in shown.stdout


async def committed(ledger: EvmLedger, run: RunId, units: int) -> Digest:
    """A commitment of the ledger's node to a file that nobody has."""
    await ledger.submit(run, Version(0), 0, ZERO, units, ZERO)
    head = await ledger.head()
    return next(
        each.commitment for each in await ledger.events(run, 0, head.number) if type(each).__name__ == "Submitted"
    )
