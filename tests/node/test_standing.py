"""What a wallet is told of its work: from the chain alone, from its own files, and from what validators say."""

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from eth_utils.crypto import keccak

from cli.status import show_standing
from ledger.base import Address, Digest, State
from ledger.journal import Attempt, Journal, SlotClaim, Stage
from node.config import Home, Sharing
from node.outcomes import Summary
from node.peers.client import PeerClient
from node.roles.frauds import ForgedReward, OtherModel
from node.roles.lending import FRESH_SECONDS, read_lending
from node.shards.manifest import build as build_manifest
from node.standing import Asked, standing, standing_of
from node.transport import Timeouts, session
from tests.roles.network import OWNER, TRAINER, Build, Network, Part
from tests.roles.stage import key, tar_pit, until

GOOD = (
    b'{"at": 1000, "serves_weights": true, "upload_limit": 50.0, "sent_bytes_s": 0.5, "sent_bytes": 7,'
    b' "quota_bytes": null}'
)
WALLET = Address(key(100).address)  # of the network's first worker


@pytest.fixture
async def peers() -> AsyncIterator[PeerClient]:
    async with session(allow_private=True) as http:
        yield PeerClient(http)


async def told(network: Network, part: Part, provider: Address, peers: PeerClient | None = None) -> Summary:
    """The standing of a wallet whose files are in the part's home."""
    node = part.member.account if provider != part.member.account else None
    asked = Asked(provider, node, Home(network.folder / part.member.account), peers)
    return await standing(network.connect(key(9)), network.run, asked)


async def test_a_settled_submission_is_told_with_its_pay_and_what_the_wallet_has(build: Build) -> None:
    network = await build(validators=2)
    await network.all_validators()
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    assert await network.live(commitment) == State.SETTLED

    found = await told(network, worker, WALLET)

    (row,) = found["submissions"]
    paid = row["units"] * int(network.spec.economics.price_per_unit)
    assert (row["state"], row["why"], row["reward"]) == ("settled", "accepted by a quorum and paid", str(paid))
    assert (row["version"], row["slot"], row["commitment"]) == (0, 0, "0x" + commitment.hex())
    assert (found["rewards"], found["locked"], found["roles"]) == (str(paid), "0", ["worker"])
    assert (found["uncommitted"], found["pending"], found["authorised"]) == ([], [], True)


async def test_an_open_submission_names_who_holds_it_where_validators_can_be_asked(
    build: Build, peers: PeerClient
) -> None:
    network = await build(validators=3)
    await network.validator(0)
    running = [(await network.validator(place)).go() for place in (1, 2)]
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    await network.confirmed(commitment)

    (alone,) = (await told(network, worker, WALLET))["submissions"]
    (asked,) = (await told(network, worker, WALLET, peers))["submissions"]

    assert alone["holders"] is None and "held by" not in alone["why"]
    assert asked["holders"] == sorted(part.member.account for part in running)
    assert asked["why"].endswith("; held by 2 of 3 validators (3 needed)")
    assert asked["why"].startswith(f"waiting for the audit, drawn at block time {asked['submitted_at'] + 6}")
    assert (asked["due"], asked["expires_at"]) == (asked["submitted_at"] + 12, asked["submitted_at"] + 120)


async def test_who_took_the_file_after_the_audit_was_drawn_is_not_told_as_holding_it(
    build: Build, peers: PeerClient
) -> None:
    network = await build(validators=2)
    early = (await network.validator(0)).go()
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    await network.confirmed(commitment)
    await network.pass_time(7)
    late = (await network.validator(1)).go()
    await until(lambda: all(len(network.case(part, commitment).haves) == 2 for part in (early, late)))

    (asked,) = (await told(network, worker, WALLET, peers))["submissions"]

    assert asked["holders"] == [early.member.account]
    assert asked["why"].endswith("; held by 1 of 2 validators (2 needed)")


async def test_what_voided_a_submission_is_told_with_what_validators_measured(build: Build, peers: PeerClient) -> None:
    network = await build(validators=2)
    (validator, _) = await network.all_validators()
    worker = await network.worker(work=ForgedReward())
    commitment = await network.commit_honestly(worker)
    await network.pass_time(8)
    assert await network.final(commitment) == State.VOIDED

    (alone,) = (await told(network, worker, WALLET))["submissions"]
    (asked,) = (await told(network, worker, WALLET, peers))["submissions"]
    (own,) = (await told(network, validator, validator.member.account))["attested"]

    assert (alone["check"], alone["measured"]) == ("reward", None)
    assert alone["why"] == "void, no pay, bond burnt: reward"
    evidence = validator.role.witness.exhibits.list()
    assert asked["evidence"][2:] in {path.stem for path in evidence}
    assert (asked["check"], asked["measured"]) == ("reward", "1")  # the forger claims the best reward
    assert float(asked["permitted"]) < 1
    assert "measured 1, permitted " in asked["why"]
    assert (own["measured"], own["permitted"]) == (asked["measured"], asked["permitted"])  # from its own disk
    assert own["faults"] == [{"check": "reward", "leaf": own["leaf"], "evidence": own["evidence"]}]


async def test_a_slash_is_told_to_the_worker_and_to_the_validator_that_reported_it(build: Build) -> None:
    network = await build(validators=2)
    (validator, _) = await network.all_validators()
    worker = await network.worker(work=OtherModel())
    commitment = await network.commit_honestly(worker)
    await network.confirmed(commitment)
    await network.audited(commitment)
    await network.pass_time(40)
    assert await network.final(commitment) == State.SLASHED

    (row,) = (await told(network, worker, WALLET))["submissions"]
    (own,) = (await told(network, validator, validator.member.account))["attested"]

    assert (row["state"], row["slashed"]) == ("slashed", network.spec.economics.penalty)
    assert row["votes"] == 2 and row["transaction"].startswith("0x")
    assert own["reported"] and own["held_at"] is not None and own["clean_leaves"] is None
    assert [fault["check"] for fault in own["faults"]] == [row["check"]]
    assert own["measured"] in own["why"]


async def test_a_submission_that_nobody_decided_has_expired_and_says_that_too_few_held_it(
    build: Build, peers: PeerClient
) -> None:
    network = await build(validators=2)
    (await network.validator()).go()
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    await network.confirmed(commitment)
    await network.pass_time(160)
    assert await network.final(commitment) == State.EXPIRED

    (row,) = (await told(network, worker, WALLET, peers))["submissions"]

    assert row["why"].startswith(f"no quorum signed by block time {row['submitted_at'] + 120}: nothing paid")
    assert row["why"].endswith("held by 1 of 2 validators (2 needed)")


async def test_without_files_here_the_chain_alone_is_told_and_said_to_be(build: Build, tmp_path: Path) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    await network.commit_honestly(worker)
    asked = Asked(WALLET, worker.member.account, Home(tmp_path / "nothing"))

    found = await standing_of(network.connect(key(9)), network.run, asked, None)

    assert found["sources"] == [
        "chain", "no files of these keys in this run on this machine: what is not on chain is left out"
    ]  # fmt: skip
    assert len(found["submissions"]) == 1 and found["uncommitted"] == []
    assert not (tmp_path / "nothing").exists()


async def test_a_validator_that_never_answers_is_left_out(build: Build, peers: PeerClient) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    await network.commit_honestly(worker)
    async with tar_pit() as url:
        await network.connect(network.validators[0]).set_endpoint(url)
        network.chain.mine(1)
        quick = PeerClient(peers.session, quick=Timeouts(0.2, 0.2, 0.2))
        (row,) = (await told(network, worker, WALLET, quick))["submissions"]

    assert row["holders"] is None


# --- Made and signed, and not on chain


def journal_of(network: Network, part: Part) -> Journal:
    ledger = part.member.ledger
    home = Home(network.folder / part.member.account)
    path = home.journal(ledger.chain_id, ledger.coordinator, part.member.account)
    path.parent.mkdir(parents=True, exist_ok=True)
    return Journal(path)


def signed(journal: Journal, part: Part, commitment: Digest, stage: Stage, slot: int, chain: str = "31337/0x00") -> str:
    """A `submit` that was signed and came to `stage`; the transaction."""
    raw = bytes([slot]) + commitment
    place = f"{part.member.ledger.coordinator}/1/{part.member.account}/0/{slot}"
    number = journal.intend(chain, part.member.account, "submit", None, b"", 0, SlotClaim(place, commitment))
    journal.sign(number, slot, 21_000, Attempt(Digest(keccak(raw)), raw, 5, 1))
    if stage is not Stage.SENT:
        journal.finish(number, stage)
    return "0x" + keccak(raw).hex()


async def test_files_that_are_not_on_chain_say_why(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    store = worker.role.maker.intake.store
    names = [Digest(bytes([number]) * 32) for number in range(1, 5)]
    for age, name in enumerate(reversed(names)):
        store.put(name, b"x" * (10 + age))
        os.utime(store.path(name), (1_000_000 - age, 1_000_000 - age))
    journal = journal_of(network, worker)
    sent = signed(journal, worker, names[1], Stage.SENT, 5)
    signed(journal, worker, names[2], Stage.MINED, 6)
    signed(journal, worker, names[3], Stage.REVERTED, 7)
    journal.close()

    found = await told(network, worker, WALLET)

    rows = {row["commitment"]: row for row in found["uncommitted"]}
    first, second, third, fourth = (rows["0x" + name.hex()] for name in names)
    assert (first["why"], first["slot"]) == ("made, and not committed: nothing was signed for it", None)
    assert (first["bytes"], first["made_at"], first["transaction"]) == (13, 999_997, None)
    assert second["why"].startswith("signed and sent, not final yet")
    assert (second["version"], second["slot"], second["transaction"]) == (0, 5, sent)
    assert third["why"] == "it was on chain and is no longer: the chain was reorganised"
    assert fourth["why"] == "the chain refused it"
    assert [row["commitment"] for row in found["uncommitted"]] == ["0x" + name.hex() for name in names]
    (waiting,) = found["pending"]
    assert (waiting["what"], waiting["nonce"], waiting["transaction"]) == ("submit", 5, sent)
    assert (waiting["account"], waiting["commitment"]) == (worker.member.account, second["commitment"])


async def test_what_was_signed_on_a_chain_that_is_gone_is_not_pending(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    journal = journal_of(network, worker)
    signed(journal, worker, Digest(b"\x01" * 32), Stage.SENT, 0, chain="31337/0xold")
    signed(journal, worker, Digest(b"\x02" * 32), Stage.SENT, 0, chain="31337/0xnew")
    journal.close()

    (waiting,) = (await told(network, worker, WALLET))["pending"]

    assert waiting["commitment"] == "0x" + "02" * 32


# --- Validators and trainer


async def test_a_validator_is_told_what_it_held_and_found_clean(build: Build) -> None:
    network = await build(validators=2)
    (validator, _) = await network.all_validators()
    commitment = await network.commit_honestly(await network.worker())
    assert await network.live(commitment) == State.SETTLED

    found = await told(network, validator, validator.member.account)

    (row,) = found["attested"]
    assert (found["roles"], "submissions" in found) == (["validator"], False)
    assert (row["clean_leaves"], row["faults"], row["reported"], row["state"]) == (4, [], False, "settled")
    assert row["submitted_at"] <= row["held_at"] <= row["due"]


async def test_a_trainer_is_told_how_much_of_each_submission_it_used(build: Build) -> None:
    network = await build(validators=1)
    await network.all_validators()
    commitment = await network.commit_honestly(await network.worker())
    assert await network.live(commitment) == State.SETTLED
    trainer = await network.trainer()
    account = Address(TRAINER.address)

    (before,) = (await told(network, trainer, account))["used"]
    trainer.go()
    await until(lambda: trainer.role.learner.version > 0 and len(trainer.member.record.checkpoints) > 1)
    found = await told(network, trainer, account)

    (row,) = found["used"]
    assert (before["used_groups"], before["step"]) == (None, None)
    assert (found["roles"], row["used_groups"], row["groups"], row["step"]) == (["trainer"], 2, 2, 1)


async def test_only_the_newest_are_listed_where_that_is_asked(build: Build) -> None:
    network = await build(validators=1)
    await network.all_validators()
    worker = await network.worker()
    commitments = []
    for _ in range(2):
        commitments.append(await network.commit_honestly(worker))
        assert await network.live(commitments[-1]) == State.SETTLED
    asked = Asked(WALLET, worker.member.account, newest=1)

    (row,) = (await standing(network.connect(key(9)), network.run, asked))["submissions"]

    assert row["commitment"] == "0x" + commitments[-1].hex()


async def test_a_file_that_came_too_late_is_said_to_have_no_run_any_more(build: Build) -> None:
    network = await build(validators=1)
    worker = await network.worker()
    worker.role.maker.intake.store.put(Digest(b"\x01" * 32), b"late")
    await network.end_run()
    in_time = (await told(network, worker, WALLET))["uncommitted"]
    network.chain.mine(network.spec.windows.grace + 1)

    late = (await told(network, worker, WALLET))["uncommitted"]

    assert in_time[0]["why"] == "made, and not committed: nothing was signed for it"
    assert late[0]["why"] == in_time[0]["why"] + "; the run has ended, and takes nothing more"


# --- Those who serve weights


@pytest.mark.parametrize("approved", [True, False])
async def test_a_relay_is_told_its_endpoint_its_versions_and_whether_it_has_a_part_at_all(
    build: Build, approved: bool
) -> None:
    network = await build(validators=1)
    relay = await network.relay()
    account = relay.member.account
    await network.connect(OWNER).set_relay(network.run, account, approved)
    relay.member.checkpoints.add(network.base)
    url = "http://203.0.113.7:8700"
    await relay.member.ledger.set_endpoint(url)

    found = await told(network, relay, account)

    store = relay.member.state.checkpoints / "checkpoints"
    taken = sum(path.stat().st_blocks * 512 for path in store.rglob("*"))
    assert (found["roles"], found["endpoint"]) == (["relay"] if approved else [], url)
    assert found["weights"] == [{"account": account, "versions": [0], "bytes": taken}]
    assert ("the owner's `intellect-node run approve`" in found.get("note", "")) is not approved


async def test_a_role_that_runs_is_told_its_limits_and_what_is_used_of_them(build: Build) -> None:
    network = await build(validators=1)
    network.settings = {"sharing": Sharing(upload_bytes_per_second=50e6, quota_bytes=10**9)}
    relay = await network.relay()
    account, word = relay.member.account, relay.member.state.sharing
    relay.member.checkpoints.add(network.base)
    (file, *_) = build_manifest(network.base).files
    await relay.member.sync()
    url = relay.member.record.endpoints[account] + f"/v1/chunks/{file.chunks[0].hex()}"

    async with session(allow_private=True) as http, http.get(url) as response:
        chunk = await response.read()
    await until(lambda: json.loads(word.read_bytes())["sent_bytes"] > 0, "the next word")
    (row,) = (await told(network, relay, account))["sharing"]
    await relay.stop()
    network.parts.remove(relay)
    left = (await told(network, relay, account))["sharing"]

    assert row["sent_bytes"] == len(chunk)
    assert 0 < row["sent_bytes_s"] <= len(chunk)
    assert (row["upload_limit"], row["quota_bytes"], row["serves_weights"]) == (50e6, 10**9, True)
    assert row["taken_bytes"] == (await told(network, relay, account))["weights"][0]["bytes"] > len(chunk)
    assert abs(row["at"] - time.time()) < 60
    assert left == []


@pytest.mark.parametrize(
    "word",
    [b"", b"{}", b"[" * 5000, b'{"at": "now"}', GOOD.replace(b"50.0", b"Infinity"), GOOD.replace(b": 7", b": -7")],
)
def test_what_is_no_word_of_a_role_that_runs_is_passed_over(tmp_path: Path, word: bytes) -> None:
    path = tmp_path / "sharing.json"
    path.write_bytes(GOOD)
    assert read_lending(path, 1000.0 + FRESH_SECONDS) is not None
    assert read_lending(path, 1001.0 + FRESH_SECONDS) is None  # its process was killed
    path.write_bytes(word)
    assert read_lending(path, 1000.0) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ["sends 1.2 MB/s (--upload-limit 50.0 MB/s), 3.0 GB since", "weights take 2.7 GB (--quota 10.0 GB)"]),
        ({"upload_limit": None, "quota_bytes": None}, ["1.2 MB/s (no --upload-limit)", "2.7 GB (no --quota)"]),
        ({"serves_weights": False}, ["50.0 MB/s), no weights (--no-serve), 3.0 GB since its start"]),
    ],
)
def test_limits_are_shown_beside_what_is_used_of_them(
    capsys: pytest.CaptureFixture[str], change: dict[str, object], words: list[str]
) -> None:
    row = {
        "account": "0x" + "a" * 40, "serves_weights": True, "upload_limit": 50e6, "sent_bytes_s": 1.2e6,
        "sent_bytes": 3 * 10**9, "quota_bytes": 10**10, "taken_bytes": 27 * 10**8,
    }  # fmt: skip
    show_standing({"block": 1, "time": 0, "sharing": [row | change]})

    shown = capsys.readouterr().out
    assert [word for word in words if word not in shown] == []


def test_the_weights_of_a_role_are_shown_as_versions_and_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"account": "0x" + "a" * 40, "versions": [0, 3, 4], "bytes": 2_700_000}
    show_standing({"block": 1, "time": 0, "weights": [row, row | {"versions": [], "bytes": 0}]})

    shown = capsys.readouterr().out
    assert "  0xaaaaaaaa…  versions 0, 3, 4, 2.7 MB in all\n" in shown
    assert "  0xaaaaaaaa…  versions none whole, 0 bytes in all\n" in shown
