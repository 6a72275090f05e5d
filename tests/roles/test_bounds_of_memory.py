"""What strangers can make a validator hold: bounded, whoever asks, however often."""

import asyncio
import threading
import time

from ledger.base import Digest
from node.rollouts.store import RolloutStore
from tests.roles.network import Build


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
