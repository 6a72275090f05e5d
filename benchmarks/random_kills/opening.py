"""The run of roles that get killed, on a chain of its own, and what a key signed in it. Killing is left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ledger.base import Address, Ledger
from ledger.connection import open_ledger
from ledger.deploy import deploy
from ledger.devnet import Anvil
from ledger.journal import Entry, Journal
from node.devnet.cast import Cast
from node.launch import Plan, build_spec, create_run
from node.membership import open_run
from node.record import Record
from node.runspec import AuditSpec, RunSpec, SlotSpec, WindowsSpec

UNBONDING_SECONDS = 3600  # longer than all windows of such a run
FUNDS_WEI = 10 * 10**18


def small_spec(base: Path, plan: Plan, windows: WindowsSpec) -> RunSpec:
    """Two groups of four rollouts, every leaf audited."""
    slot, audit = SlotSpec(groups=2, group_size=4), AuditSpec(leaves=8)
    return build_spec("tiny", base, plan).model_copy(update={"slot": slot, "audit": audit, "windows": windows})


async def opened(
    anvil: Anvil, cast: Cast, names: Iterable[str], spec: RunSpec, quorum: int, pot: int
) -> tuple[Ledger, Record]:
    """Makes a player of every name, with funds; the run is of those named for a trainer, relays and validators.

    The ledger is its owner's.
    """
    for name in names:
        await anvil.fund(cast.player(name).address, FUNDS_WEI)
    (await deploy(anvil.rpc_url, anvil.accounts[0], UNBONDING_SECONDS)).save(cast.deployment)
    owner = await open_ledger([anvil.rpc_url], cast.deployment, anvil.accounts[0], None)

    def named(kind: str) -> list[Address]:
        return [player.address for name, player in cast.players.items() if name.startswith(kind)]

    (trainer,) = named("trainer")
    run = await create_run(owner, spec, trainer, named("validator"), quorum, named("relay"), pot)
    found, _ = await open_run(owner, run)
    return owner, Record(found)


def journalled(home: Path) -> list[Entry]:
    """Everything that was ever signed with a key of `home`."""
    found = []
    for path in sorted((home / "journals").glob("*.sqlite")):
        journal = Journal(path)
        found += journal.signed()
        journal.close()
    return found
