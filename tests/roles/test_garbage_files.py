"""One malformed file after another between good ones: each is void for what it is, and every good one settles."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from ledger.base import Digest, State
from node.errors import Malformed
from node.rollouts.assignment import file_units
from node.rollouts.file import MIN_LEAF_BYTES, decode_file, encode_file, split_file
from node.rollouts.rollout import Rollout
from node.runspec import RunSpec
from node.verdicts import Check
from tests.roles.network import Build, Network, Part
from tests.roles.stage import until

Rows = Sequence[Rollout]


class Garbage(NamedTuple):
    """How a file is spoilt, and which check it must be void under."""

    spoil: Callable[[Rows], bytes]
    check: Check


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def framed(leaves: Sequence[bytes]) -> bytes:
    return b"".join(u32(len(leaf)) + leaf for leaf in leaves)


def leaves_of(rows: Rows) -> list[bytes]:
    return list(split_file(encode_file(rows), 1 << 30))


def in_bytes(change: Callable[[bytes], bytes], leaf: int = 0) -> Callable[[Rows], bytes]:
    """Changes the bytes of one leaf."""

    def spoil(rows: Rows) -> bytes:
        leaves = leaves_of(rows)
        leaves[leaf] = change(leaves[leaf])
        return framed(leaves)

    return spoil


def in_row(change: Callable[[Rollout], Rollout], leaf: int = 0) -> Callable[[Rows], bytes]:
    """Changes the values of one rollout."""
    return lambda rows: encode_file([change(row) if at == leaf else row for at, row in enumerate(rows)])


def reward(bits: int) -> Callable[[Rows], bytes]:
    return in_bytes(lambda leaf: leaf[:-4] + u32(bits))


def cut_list(row: Rollout, tokens: int) -> Rollout:
    """The first tokens alone, with as many proofs as these have."""
    return replace(
        row, output_ids=row.output_ids[:tokens], logprobs=row.logprobs[:tokens], proofs=row.proofs[: -(-tokens // 32)]
    )


def repeated(row: Rollout, times: int) -> Rollout:
    outputs = row.output_ids * times
    return replace(
        row, output_ids=outputs, logprobs=row.logprobs * times, proofs=(row.proofs * times)[: -(-len(outputs) // 32)]
    )


GARBAGE: dict[str, Garbage] = {
    "a wrong tag": Garbage(in_bytes(lambda leaf: b"\x01" + leaf[1:]), Check.SCHEMA),
    "a length of 2^32 - 1 inside": Garbage(in_bytes(lambda leaf: leaf[:13] + u32(2**32 - 1) + leaf[17:]), Check.SCHEMA),
    "a wrong count of rows": Garbage(in_bytes(lambda leaf: leaf[:5] + u32(5) + leaf[9:]), Check.SCHEMA),
    "bytes left over": Garbage(in_bytes(lambda leaf: leaf + b"\0\0"), Check.SCHEMA),
    "noise": Garbage(in_bytes(lambda leaf: bytes(range(256)) * (len(leaf) // 256 + 1), leaf=2), Check.SCHEMA),
    "NaN": Garbage(reward(0x7FC00000), Check.SCHEMA),
    "minus zero": Garbage(reward(0x80000000), Check.SCHEMA),
    "ten times too many rows": Garbage(lambda _rows: framed([bytes(MIN_LEAF_BYTES)] * 40), Check.SCHEMA),
    "ten times too many whole rows": Garbage(lambda rows: encode_file(list(rows) * 10), Check.WITHHELD),
    "rows out of order": Garbage(lambda rows: framed(leaves_of(rows)[::-1]), Check.SCHEMA),
    "no output": Garbage(in_row(lambda row: cut_list(row, 0)), Check.SCHEMA),
    "an output too long": Garbage(in_row(lambda row: repeated(row, 2000)), Check.WITHHELD),  # over the file's limit
    "a token outside the vocabulary": Garbage(
        in_row(lambda row: replace(row, output_ids=(2**32 - 1, *row.output_ids[1:]))), Check.BOUNDS
    ),
    "the null proof": Garbage(in_row(lambda row: replace(row, proofs=(bytes(258),) * len(row.proofs))), Check.BOUNDS),
    "another prompt": Garbage(
        in_row(lambda row: replace(row, prompt_ids=row.prompt_ids[::-1]), leaf=1), Check.ASSIGNMENT
    ),
    "a forged reward": Garbage(in_row(lambda row: replace(row, reward=row.reward + 0.5)), Check.REWARD),
}


def with_many_open(spec: RunSpec) -> RunSpec:
    """A run in which a node may have many submissions open; with wide windows, for every transaction takes a second."""
    economics = spec.economics.model_copy(update={"max_open": 40})
    windows = spec.windows.model_copy(update={"available": 30, "settle_by": 400})
    return spec.model_copy(update={"economics": economics, "windows": windows})


async def spoilt(network: Network, cheat: Part, garbage: Garbage) -> Digest:
    """Commits to a file that was made honestly and then spoilt; it is there for everybody to fetch."""
    assignment = await network.assignment(cheat)
    work = await cheat.role.maker.make(assignment)
    data = garbage.spoil(decode_file(work.data, network.spec))
    units = work.claim.units
    if garbage.check not in {Check.SCHEMA, Check.WITHHELD}:
        units = file_units(decode_file(data, network.spec), network.spec)
    return await network.commit(cheat, assignment, data, units)


async def test_every_good_file_settles_and_every_malformed_one_is_void_for_what_it_is(
    build: Build, spec: RunSpec
) -> None:
    network = await build(validators=2, spec=with_many_open(spec))
    validators = await network.all_validators()
    cheat, honest = await network.worker(200), await network.worker(300)
    bad: dict[Digest, str] = {}
    good: list[Digest] = []
    for number, (name, garbage) in enumerate(GARBAGE.items()):
        bad[await spoilt(network, cheat, garbage)] = name
        if number % 5 == 4:
            good.append(await network.commit_honestly(honest))
            await network.confirmed(good[-1])  # before the time comes when that is too late
        await network.pass_time(1)
    await network.audited(good[-1])

    assert [await network.settled(commitment) for commitment in good] == [State.SETTLED] * len(good)
    await network.pass_time(20)
    record = validators[0].member.record
    await until(lambda: all(record.is_final(commitment) for commitment in bad))
    found = {name: (record.submissions[c].state, record.submissions[c].check) for c, name in bad.items()}
    assert found == {name: (State.VOIDED, garbage.check) for name, garbage in GARBAGE.items()}
    assert all(not part.finished for part in validators)
    assert all(part.role.casebook.cases.keys() <= {*record.unfinished} for part in validators)


async def test_a_file_is_refused_and_its_sender_told_when_it_is_that_of_another_commitment(
    build: Build, spec: RunSpec
) -> None:
    network = await build(validators=1, spec=with_many_open(spec))
    (validator,) = await network.all_validators()
    worker = await network.worker()
    data: dict[Digest, bytes] = {}
    for _ in range(2):
        assignment = await network.assignment(worker)
        work = await worker.role.maker.make(assignment)
        data[await network.commit(worker, assignment, work.data, work.claim.units, serve=False)] = work.data
        worker.role.maker.intake.store.delete(work.claim.commitment)  # it is handed over, not fetched
    one, two = data
    await validator.member.sync()
    url = validator.member.record.endpoints[validator.member.account]

    with pytest.raises(Malformed, match=r"refused with 422.*do not hash to the committed root"):
        await worker.member.peers.push_submission(url, one, data[two])
    await worker.member.peers.push_submission(url, one, data[one])
    assert validator.role.intake.holds(one) and not validator.role.intake.holds(two)
