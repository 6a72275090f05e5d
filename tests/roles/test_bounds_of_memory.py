"""What strangers can make a validator hold: bounded, whoever asks, however often."""

import asyncio
import threading
import time
from pathlib import Path

from ledger.base import Address, Digest, RunId
from ledger.messages import Domain, Have, SignedMessage
from node.roles.casebook import MAX_VAIN, MAX_WASTE, Casebook
from node.rollouts.store import RolloutStore
from tests.roles.network import Build
from tests.roles.stage import key


class Counting(RolloutStore):
    """Notes how many files are being read at once, each for a while."""

    now = most = reads = 0
    lock = threading.Lock()

    def get(self, commitment: Digest) -> bytes | None:
        with self.lock:
            self.now += 1
            self.reads += 1
            self.most = max(self.most, self.now)
        time.sleep(0.02)
        with self.lock:
            self.now -= 1
        return super().get(commitment)


async def test_one_file_at_a_time_is_in_memory_when_strangers_ask_for_signatures_over_it_all_at_once(
    build: Build,
) -> None:
    network = await build(validators=2)
    validator = await network.validator()
    worker = await network.worker()
    commitment = await network.commit_honestly(worker)
    data = worker.role.maker.intake.store.get(commitment)
    validator.role.intake.store.put(commitment, data)
    for _ in range(12):
        network.chain.mine(1)
    await validator.member.sync()
    store = Counting(validator.member.state.rollouts)
    validator.role.intake.store = store
    url = validator.member.record.endpoints[validator.member.account]

    answers = await asyncio.gather(*(worker.member.peers.propose(url, network.run, [commitment]) for _ in range(40)))

    assert {answer.refused for answer in answers} == {(commitment,)}  # nobody has confirmed that it holds the file
    assert (store.most, store.reads) == (1, 2)  # once for the draw, once for the checks


async def test_a_bounded_number_of_forgeries_is_remembered_however_many_sources_send_them(tmp_path: Path) -> None:
    commitment = Digest(b"\x01" * 32)
    domain = Domain(31337, Address("0x" + "11" * 20))
    book = Casebook(tmp_path, domain, frozenset({Address(key(1).address)}), RunId(3), 4)
    for source in range(MAX_VAIN // MAX_WASTE + 2):
        forged = [
            SignedMessage("Have", Have(commitment, 1000 * source + n), bytes([1]) * 64 + b"\x1b")
            for n in range(MAX_WASTE + 3)
        ]
        await book.add(commitment, forged, f"http://{source}")

    assert len(book.vain[commitment]) == MAX_VAIN == 256
    assert set(book.wasted[commitment].values()) == {MAX_WASTE}
    book.forget(commitment)
    assert (book.cases, book.vain, book.wasted, len(book.locks)) == ({}, {}, {}, 0)
