"""`intellect-node status` as its user meets it: a real chain, and what it prints."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path

from eth_account import Account
from eth_account.signers.local import LocalAccount

from ledger import keys
from ledger.base import Address, Digest, Fault, RunId, Version
from ledger.deployment import Deployment
from ledger.evm import EvmLedger
from ledger.following import Patience
from ledger.messages import Domain
from ledger.messages import sign as sign_message
from node.launch import create_run, default_pot
from node.roles.registration import Registration
from tests.cli.chain import Chain
from tests.cli.command import command

ANOTHER = "of which the command knows nothing"  # password: `status` unlocks no wallet
ZERO = Digest(bytes(32))


def wallet(home: Path) -> tuple[LocalAccount, LocalAccount]:
    """A wallet with its node key, as `join` leaves them."""
    path = home / "wallets" / "mine.json"
    keys.create(path, ANOTHER, 2**10)
    keys.create(keys.node_key_path(path), ANOTHER, 2**10)
    return keys.unlock(path, ANOTHER), keys.unlock(keys.node_key_path(path), ANOTHER)


async def test_a_reported_submission_is_shown_with_its_votes_and_what_the_wallet_has(
    chain: Chain, tmp_path: Path
) -> None:
    provider, node = wallet(tmp_path)
    validators = sorted((Account.create() for _ in range(3)), key=lambda each: int(each.address, 16))

    async def connect(account: LocalAccount) -> EvmLedger:
        await chain.anvil.fund(account.address, 10**18)
        deployment = Deployment.load(chain.contracts)
        return await EvmLedger.connect([chain.anvil.rpc_url], deployment, account, None, Patience(poll=0.01))

    ledgers = [await connect(account) for account in (Account.create(), validators[0], provider, node)]
    owner, validator, paying, working = ledgers
    named = [Address(each.address) for each in validators]
    run = await create_run(owner, chain.spec, owner.account, named, 2, (), default_pot(chain.spec))
    await owner.publish_checkpoint(run, Version(0), ZERO)
    await Registration(paying, node, await paying.run(run)).ensure()
    commitment = await committed(working, run, units=5_000_000)
    fault = Fault(run, commitment, 3, 8, ZERO)
    domain = Domain(owner.chain_id, owner.coordinator)
    await validator.report(run, [fault], [sign_message(validators[0], domain, fault)])

    words = ("status", "--wallet", "mine", "--run", str(run), *chain.at(), "--no-ask")
    read = await asyncio.to_thread(command, *words, "--json", home=tmp_path)
    shown = await asyncio.to_thread(command, *words, home=tmp_path)
    for ledger in ledgers:
        await ledger.close()

    stake = int(chain.spec.economics.penalty) + int(chain.spec.economics.submission_bond)
    found = json.loads(read.out)
    (row,) = found["submissions"]
    assert (found["roles"], found["allocated"], found["locked"]) == (["worker"], str(stake), str(stake))
    assert (row["state"], row["check"], row["leaf"], row["votes"], row["quorum"]) == ("faulted", "toploc", 3, 1, 2)
    assert (row["commitment"], row["units"], row["reward"]) == ("0x" + commitment.hex(), 5_000_000, "0")
    until = row["due"] + 20  # the local pace's `confirm`, from when the audit is due: the report came before
    assert row["why"] == f"reported: 1 of 2 votes for toploc on rollout 3; void without a quorum by block time {until}"
    assert found["sources"][1].startswith("no files of these keys in this run on this machine")
    assert (read.err, shown.code) == ("", 0)
    exact = f"{Decimal(stake) / 10**18:f}".rstrip("0")
    assert f"stake allocated {exact} tSTAKE" in " ".join(shown.out.split())
    assert f"version 0 slot 0  0x{commitment.hex()[:10]}…" in shown.out and "faulted" in shown.out
    assert "1 of 2 votes for toploc on rollout 3; void without a quorum by 20" in shown.out
    assert "signed, not final: none" in shown.out


async def committed(ledger: EvmLedger, run: RunId, units: int) -> Digest:
    """A commitment of the ledger's node to a file that nobody has."""
    await ledger.submit(run, Version(0), 0, ZERO, units, ZERO)
    head = await ledger.head()
    return next(
        each.commitment for each in await ledger.events(run, 0, head.number) if type(each).__name__ == "Submitted"
    )
