"""The `Ledger` on an EVM chain: every read an `eth_call` to the deployment's contracts, every write a transaction."""

import hashlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, Self

from eth_account.signers.local import LocalAccount
from eth_utils.address import to_checksum_address

from ledger.base import (
    NOBODY,
    Address,
    Allocation,
    Block,
    Digest,
    Event,
    Fault,
    Receipt,
    Run,
    RunId,
    RunParams,
    RunState,
    State,
    SubmissionState,
    Unbonding,
    Version,
    Windows,
)
from ledger.beacons import BeaconReader
from ledger.blocks import AHEAD_SECONDS, Headers
from ledger.commitments import commitment
from ledger.contracts import Contracts
from ledger.deployment import Deployment
from ledger.endpoints import Endpoints
from ledger.errors import KeystoreError, Unreachable
from ledger.events import EventReader
from ledger.following import Mined, Patience
from ledger.journal import SlotClaim
from ledger.logs import read_log
from ledger.signing import Call
from ledger.transactions import DEVNET_POLL_SECONDS, REPEAT_POLLS, Sender, open_sender
from ledger.translation import BadAnswer


class EvmLedger:
    """One account's view of one deployment. Made by `connect`, ended by `close`."""

    def __init__(
        self,
        endpoints: Endpoints,
        headers: Headers,
        beacons: BeaconReader,
        deployment: Deployment,
        sender: Sender | None,
    ) -> None:
        self._endpoints = endpoints
        self._headers = headers
        self._beacons = beacons
        self._deployment = deployment
        self._sender = sender
        contracts = Contracts(endpoints, deployment)
        self._token, self._staking, self._coordinator = contracts.token, contracts.staking, contracts.coordinator
        self._reader = EventReader(endpoints, headers, deployment.coordinator, deployment.staking)
        self._created: dict[RunId, tuple[bytes, int]] = {}

    @classmethod
    async def connect(
        cls,
        rpc_urls: Sequence[str],
        deployment: Deployment,
        account: LocalAccount | None,
        journal: Path | None,
        patience: Patience | None = None,
    ) -> Self:
        """Checks chain and contracts, and takes up what the journal left unfinished.

        Args:
            rpc_urls: endpoints, the preferred one first; the others stand in when it fails.
            account: whose key signs; None only reads.
            journal: the file that remembers what was signed; None forgets it with the process.
            patience: how long transactions may take; None fits the chain.

        Raises:
            WrongChain: an endpoint serves another chain.
            NotDeployed: a contract of `deployment` is missing or another one.
            Unreachable: no endpoint answers.
            JournalError: the journal cannot be used.
        """
        endpoints = Endpoints(rpc_urls, deployment.chain_id)
        async with AsyncExitStack() as opened:
            opened.push_async_callback(endpoints.close)
            await endpoints.require_chain()
            await endpoints.keep_genesis()
            ahead = None if await endpoints.is_anvil() else AHEAD_SECONDS
            headers = Headers(endpoints, ahead, deployment.confirmations)
            if ahead is None:
                endpoints.repeat_seconds = REPEAT_POLLS * DEVNET_POLL_SECONDS
            await Contracts(endpoints, deployment).require()
            beacons = await BeaconReader.open(endpoints, headers, deployment.confirmations)
            sender: Sender | None = None
            if account is not None:
                sender = await open_sender(
                    endpoints, account, journal, deployment.chain_id, deployment.confirmations, patience
                )
            opened.pop_all()
        return cls(endpoints, headers, beacons, deployment, sender)

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()
        await self._endpoints.close()

    @property
    def chain_id(self) -> int:
        return self._deployment.chain_id

    @property
    def coordinator(self) -> Address:
        return self._deployment.coordinator

    @property
    def staking(self) -> Address:
        return self._deployment.staking

    @property
    def origin_block(self) -> int:
        return self._deployment.block

    @property
    def confirmations(self) -> int:
        return self._deployment.confirmations

    @property
    def account(self) -> Address:
        return self._writer.address

    @property
    def _writer(self) -> Sender:
        if self._sender is None:
            raise KeystoreError("this needs an account: no wallet was given, so the ledger can only be read")
        return self._sender

    async def finish_earlier(self) -> int:
        return 0 if self._sender is None else await self._sender.finish_earlier()

    # --- Chain

    async def head(self) -> Block:
        return (await self._headers.latest()).block

    async def block_at(self, time: int) -> Block | None:
        header = await self._headers.first_at(time)
        return None if header is None else header.block

    async def beacon(self, block_number: int) -> Digest | None:
        return await self._beacons.beacon(block_number)

    async def native_balance(self, who: Address) -> int:
        return await self._endpoints.ask(lambda w3: w3.eth.get_balance(to_checksum_address(who), "latest"))

    async def token_balance(self, who: Address) -> int:
        return int(await self._token.view("balanceOf", who))

    # --- Runs

    async def run(self, run: RunId) -> Run:
        params = await self._coordinator.view("runParams", run)
        owner = await self._coordinator.view("runOwner", run)
        digest = Digest(await self._coordinator.view("specDigest", run))
        spec, block = await self._creation(run, digest)
        return Run(run, owner, _params(params), spec, digest, block)

    async def _creation(self, run: RunId, digest: Digest) -> tuple[bytes, int]:
        """The run's specification, which only its creation's log holds, and the block of that."""
        if run not in self._created:
            last = (await self._headers.latest()).number
            logs = await self._reader.find("RunCreated", run, self.origin_block, last)
            if len(logs) != 1:
                raise Unreachable(f"{len(logs)} logs of the creation of run {run}")
            spec: bytes = logs[0].operands["spec"]
            if hashlib.sha256(spec).digest() != digest:
                raise Unreachable(f"the endpoint's specification of run {run} has another digest than the contract's")
            self._created[run] = (spec, logs[0].block)
        return self._created[run]

    async def run_count(self) -> int:
        return int(await self._coordinator.view("runCount"))

    async def run_state(self, run: RunId) -> RunState:
        return RunState(*await self._coordinator.view("runState", run))

    async def slot(self, run: RunId, version: Version, node: Address) -> int:
        return int(await self._coordinator.view("slots", run, version, node))

    async def open_of(self, run: RunId, node: Address) -> int:
        return int(await self._coordinator.view("openOf", run, node))

    async def submission(self, run: RunId, commitment: Digest) -> SubmissionState:
        node, submitted_at, units, state = await self._coordinator.view("submission", run, commitment)
        return SubmissionState(node, submitted_at, units, _state(state))

    async def rewards(self, provider: Address) -> int:
        return int(await self._coordinator.view("rewards", provider))

    async def events(self, run: RunId, first_block: int, last_block: int) -> list[Event]:
        if last_block > self._headers.highest:
            last_block = min(last_block, (await self._headers.latest()).number)
        return await self._reader.read(run, first_block, last_block)

    def doubt(self) -> bool:
        return self._endpoints.doubt()

    # --- Stake

    async def free_stake(self, provider: Address) -> int:
        return int(await self._staking.view("free", provider))

    async def allocation(self, run: RunId, node: Address) -> Allocation:
        amount, locked = await self._staking.view("allocation", run, node)
        return Allocation(amount, locked, await self._staking.view("firstAllocation", run, node))

    async def provider_of(self, node: Address) -> Address | None:
        provider = Address(await self._staking.view("providerOf", node))
        return None if provider == NOBODY else provider

    async def node_nonce(self, node: Address) -> int:
        return int(await self._staking.view("nonces", node))

    async def unbonding_seconds(self) -> int:
        return int(await self._staking.view("unbonding"))

    async def unbonding_of(self, provider: Address) -> Unbonding:
        return Unbonding(*await self._staking.view("unbondingOf", provider))

    # --- Writes

    async def _send(self, call: Call) -> Receipt:
        return (await self._writer.send(call)).receipt

    async def _approve(self, spender: Address, amount: int) -> None:
        """Lets `spender` take `amount` of the account's tokens, if it may not yet."""
        if await self._token.view("allowance", self.account, spender) < amount:
            await self._send(self._token.call("approve", spender, amount))

    async def faucet(self, amount: int) -> Receipt:
        return await self._send(self._token.call("faucet", amount))

    async def transfer_native(self, to: Address, amount: int) -> Receipt:
        return await self._send(Call("transfer", to, b"", amount))

    async def stake(self, amount: int) -> Receipt:
        await self._approve(self.staking, amount)
        return await self._send(self._staking.call("stake", amount))

    async def unstake(self, run: RunId, node: Address, amount: int) -> Receipt:
        return await self._send(self._staking.call("unstake", run, node, amount))

    async def withdraw(self) -> Receipt:
        return await self._send(self._staking.call("withdraw"))

    async def authorize_node(self, node: Address, deadline: int, signature: bytes) -> Receipt:
        return await self._send(self._staking.call("authorizeNode", node, deadline, signature))

    async def allocate(self, run: RunId, node: Address, amount: int) -> Receipt:
        return await self._send(self._staking.call("allocate", run, node, amount))

    async def create_run(self, params: RunParams, spec: bytes) -> RunId:
        mined = await self._writer.send(self._coordinator.call("createRun", astuple(params), spec))
        return self._run_created(mined)

    def _run_created(self, mined: Mined) -> RunId:
        try:
            logs = [read_log(entry) for entry in mined.logs if str(entry["address"]) == self.coordinator]
        except BadAnswer as problem:
            raise Unreachable(f"a receipt of createRun: {problem}") from problem
        for log in logs:
            if log is not None and log.event == "RunCreated":
                return RunId(log.operands["run"])
        raise Unreachable("a receipt of createRun that names no run")

    async def fund_run(self, run: RunId, amount: int) -> Receipt:
        await self._approve(self.coordinator, amount)
        return await self._send(self._coordinator.call("fundRun", run, amount))

    async def set_relay(self, run: RunId, relay: Address, approved: bool) -> Receipt:
        return await self._send(self._coordinator.call("setRelay", run, relay, approved))

    async def set_endpoint(self, url: str) -> Receipt:
        return await self._send(self._coordinator.call("setEndpoint", url))

    async def publish_checkpoint(self, run: RunId, version: Version, manifest_root: Digest) -> Receipt:
        return await self._send(self._coordinator.call("publishCheckpoint", run, version, manifest_root))

    async def submit(
        self, run: RunId, version: Version, slot: int, root: Digest, units: int, beacon: Digest
    ) -> Receipt:
        """See `Ledger.submit`. Raises besides: SlotTaken, if this journal holds another commitment to that slot."""
        place = f"{self.coordinator}/{run}/{self.account}/{version}/{slot}"
        call = self._coordinator.call("submit", run, version, slot, root, units, beacon)
        signed = commitment(self.chain_id, self.coordinator, run, self.account, version, slot, root, units, beacon)
        return await self._send(Call(call.what, call.to, call.data, claim=SlotClaim(place, signed)))

    async def settle(self, run: RunId, commitments: Sequence[Digest], signatures: Sequence[bytes]) -> Receipt:
        return await self._send(self._coordinator.call("settle", run, list(commitments), list(signatures)))

    async def report(self, run: RunId, faults: Sequence[Fault], signatures: Sequence[bytes]) -> Receipt:
        listed = [astuple(fault) for fault in faults]
        return await self._send(self._coordinator.call("report", run, listed, list(signatures)))

    async def conclude(self, run: RunId, commitments: Sequence[Digest]) -> Receipt:
        return await self._send(self._coordinator.call("conclude", run, list(commitments)))

    async def claim(self) -> Receipt:
        return await self._send(self._coordinator.call("claim"))

    async def end_run(self, run: RunId) -> Receipt:
        return await self._send(self._coordinator.call("endRun", run))

    async def withdraw_pot(self, run: RunId) -> Receipt:
        return await self._send(self._coordinator.call("withdrawPot", run))


def _params(values: tuple[Any, ...]) -> RunParams:
    trainer, validators, *others, windows = values
    names = (field.name for field in fields(RunParams))
    return RunParams(**dict(zip(names, (trainer, tuple(validators), *others, Windows(*windows)), strict=True)))


def _state(value: int) -> State:
    if value not in set(State):
        raise Unreachable(f"a submission in state {value}, which this version does not know")
    return State(value)
