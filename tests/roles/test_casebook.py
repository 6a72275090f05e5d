"""What gets into a case: only what a validator of the run signed about it, a bounded number of each, on disk first."""

import asyncio
import gc
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.base import WHOLE_FILE, Address, Digest, Fault, RunId
from ledger.messages import HALF_ORDER, Clear, Domain, Have, NoFault, SignedMessage, Statement, sign
from node.errors import NotFound, StoreError
from node.roles.casebook import MAX_FAULTS, MAX_WASTE, STRANGERS, Casebook
from tests.roles.stage import key

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141  # of secp256k1; SEC 2, section 2.4.1
DOMAIN = Domain(31337, Address("0x" + "11" * 20))
RUN, ROWS = RunId(3), 4
A, B, STRANGER = key(1), key(2), key(3)
ABOUT, OTHER = Digest(b"\x01" * 32), Digest(b"\x02" * 32)
HAVE = Have(ABOUT, 100)
PEER = "http://peer"


@pytest.fixture
def book(tmp_path: Path) -> Casebook:
    return Casebook(tmp_path / "cases", DOMAIN, frozenset({Address(A.address), Address(B.address)}), RUN, ROWS)


def by(who: object, message: Statement, domain: Domain = DOMAIN) -> SignedMessage:
    return SignedMessage(type(message).__name__, message, sign(who, domain, message))  # type: ignore[arg-type]


def fault(leaf: int = 0, run: RunId = RUN, check: int = 8) -> Fault:
    return Fault(run, ABOUT, leaf, check, Digest(bytes([leaf % 256]) * 32))


def upper_half(signed: SignedMessage) -> SignedMessage:
    """The other signature of the same key over the same message, which nobody may accept."""
    r, s, v = signed.signature[:32], int.from_bytes(signed.signature[32:64]), signed.signature[64]
    assert s <= HALF_ORDER
    return replace(signed, signature=r + (ORDER - s).to_bytes(32) + bytes([55 - v]))


@pytest.mark.parametrize(
    "signed",
    [
        by(STRANGER, HAVE),
        by(A, HAVE, Domain(1, DOMAIN.contract)),
        by(A, HAVE, Domain(31337, Address("0x" + "22" * 20))),
        by(A, Have(OTHER, 100)),
        upper_half(by(A, HAVE)),
        replace(by(A, HAVE), signature=b"\x01" * 64),
        replace(by(A, HAVE), signature=b"\x01" * 65),
        replace(by(A, HAVE), signature=by(A, HAVE).signature[:64] + b"\x00"),
        replace(by(A, HAVE), message=Have(ABOUT, 99)),
        by(A, fault(run=RunId(4))),
        by(A, fault(leaf=ROWS)),
        by(A, fault(leaf=WHOLE_FILE - 1)),
        by(A, NoFault(ABOUT, (0, ROWS))),
        by(A, Clear(RUN, ABOUT, 0)),
    ],
    ids=[
        "a stranger's", "another chain's", "another contract's", "of another commitment", "high s", "64 bytes",
        "noise", "v of 0", "a changed message", "another run's", "of no leaf", "of no leaf either",
        "clean leaves that do not exist", "of a kind not kept",
    ],
)  # fmt: skip
async def test_a_message_is_not_kept_and_leaves_no_trace_when_it_is(book: Casebook, signed: SignedMessage) -> None:
    await book.add(ABOUT, [signed], PEER)

    assert (await book.case(ABOUT)).messages() == []
    assert not book.folder.exists()


async def test_every_kind_is_kept_and_read_back_when_a_validator_signed_it(book: Casebook) -> None:
    said = [by(A, HAVE), by(B, NoFault(ABOUT, (0, 3))), by(B, fault(leaf=1)), by(A, fault(leaf=WHOLE_FILE, check=9))]
    await book.add(ABOUT, said, PEER)

    again = Casebook(book.folder, DOMAIN, book.validators, RUN, ROWS)
    case = await again.case(ABOUT)

    assert case == await book.case(ABOUT)
    assert case.have_times() == [100]
    assert case.clean(Address(B.address)) == {0, 3}
    assert case.clean(Address(A.address)) == frozenset()
    assert case.found(Address(A.address)) == [fault(leaf=WHOLE_FILE, check=9)]
    assert sorted(m.signature for m in case.messages()) == sorted(m.signature for m in said)
    assert again.on_disk() == [ABOUT]


async def test_the_first_word_stands_when_a_validator_says_something_else_later(book: Casebook) -> None:
    await book.add(ABOUT, [by(A, HAVE), by(A, NoFault(ABOUT, (0, 1)))], PEER)
    os.utime(book.path(ABOUT), ns=(0, 0))  # a time that nothing which is written now has

    await book.add(ABOUT, [by(A, Have(ABOUT, 1)), by(A, NoFault(ABOUT, (2,))), by(A, HAVE)], PEER)

    case = await book.case(ABOUT)
    assert case.have_times() == [100] and case.clean(Address(A.address)) == {0, 1}
    assert book.path(ABOUT).stat().st_mtime_ns == 0  # nothing new, nothing written


async def test_only_so_many_faults_of_one_validator_are_kept(book: Casebook) -> None:
    said = [by(A, Fault(RUN, ABOUT, 0, 8, Digest(bytes([n]) * 32))) for n in range(MAX_FAULTS + 3)]
    await book.add(ABOUT, said, PEER)

    assert len((await book.case(ABOUT)).found(Address(A.address))) == MAX_FAULTS == 8


async def test_strangers_are_no_longer_listened_to_when_they_have_sent_too_much(book: Casebook) -> None:
    noise = [replace(by(A, HAVE), signature=n.to_bytes(32) * 2 + b"\x1b") for n in range(1, 129)]
    await book.add_pushed(ABOUT, noise)
    assert book.wasted[ABOUT][STRANGERS] == MAX_WASTE == 32  # of 128: the rest was not even looked at

    with pytest.raises(NotFound, match="asks the validators itself"):
        await book.add_pushed(ABOUT, [by(A, HAVE)])
    await book.add(ABOUT, [by(A, HAVE)], PEER)  # asked for, at a validator's own address
    assert (await book.case(ABOUT)).have_times() == [100]
    await book.add_pushed(OTHER, [by(A, Have(OTHER, 7))])  # another submission is another matter
    assert (await book.case(OTHER)).have_times() == [7]


async def test_what_is_known_costs_nothing_when_it_is_sent_again(book: Casebook) -> None:
    await book.add_pushed(ABOUT, [by(A, HAVE)])
    await book.add_pushed(ABOUT, [by(A, HAVE)] * 100)
    assert book.wasted[ABOUT][STRANGERS] == 0  # a signature that is looked at and brings nothing new counts as waste


async def test_a_validator_that_says_ever_new_things_is_no_longer_looked_at_and_the_others_still_are(
    book: Casebook,
) -> None:
    flood = [by(A, Have(ABOUT, n)) for n in range(1, 101)]

    await book.add(ABOUT, flood[:50], PEER)
    assert book.wasted[ABOUT][PEER] == 32 and book.vain[ABOUT] == set(flood[1:33])  # the first is kept
    await book.add(ABOUT, flood, PEER)
    assert book.wasted[ABOUT][PEER] == 32 and book.vain[ABOUT] == set(flood[1:33])  # neither again, nor any other

    more = by(A, Have(ABOUT, 7777))
    await book.add(ABOUT, [flood[5], more, by(B, HAVE)], "http://other")
    assert book.wasted[ABOUT]["http://other"] == 1  # what was in vain before costs nothing, whoever sends it
    assert book.vain[ABOUT] == {*flood[1:33], more}
    assert (await book.case(ABOUT)).have_times() == [1, 100]

    await book.add(ABOUT, [by(A, Have(ABOUT, 8888)), by(B, Have(ABOUT, 9999))], "http://third")
    assert book.wasted[ABOUT]["http://third"] == 0  # every validator's Have is there
    await book.add(ABOUT, [by(B, NoFault(ABOUT, (0,)))], "http://third")
    assert (await book.case(ABOUT)).clean(Address(B.address)) == {0}


async def test_a_submission_does_not_wait_while_another_is_written_down(book: Casebook) -> None:
    """Into a pipe, which is opened once somebody reads it, and then no disk."""
    book.folder.mkdir()
    pipe = book.path(ABOUT).with_name(book.path(ABOUT).name + ".tmp")
    os.mkfifo(pipe)
    first = asyncio.create_task(book.add(ABOUT, [by(A, HAVE)], PEER))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(book.add(ABOUT, [by(B, HAVE)], PEER))  # of the same one: waits
    try:
        async with asyncio.timeout(5):
            await book.add(OTHER, [by(A, Have(OTHER, 7))], PEER)
        assert not first.done() and not second.done()
    finally:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    with pytest.raises(StoreError):
        await first
    await second
    os.close(reader)
    assert (await book.case(ABOUT)).have_times() == [100]
    assert (await book.case(ABOUT)).haves.keys() == {Address(B.address)}
    del first, second
    gc.collect()
    assert dict(book.locks) == {}  # nobody holds one


async def test_nothing_is_kept_when_it_cannot_be_written_down(book: Casebook) -> None:
    book.folder.write_bytes(b"a file where the folder should be")

    with pytest.raises(StoreError):
        await book.say(Address(A.address), by(A, HAVE))
    assert (await book.case(ABOUT)).messages() == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b"[" * 100_000, b'[{"kind": "Have"}]'])
async def test_a_case_starts_anew_when_its_file_is_spoilt(book: Casebook, content: bytes) -> None:
    book.folder.mkdir()
    book.path(ABOUT).write_bytes(content)

    assert (await book.case(ABOUT)).messages() == []
    await book.add(ABOUT, [by(A, HAVE)], PEER)
    assert len(json.loads(book.path(ABOUT).read_bytes())) == 1


async def test_a_forged_message_in_the_file_is_left_out_when_it_is_read_back(book: Casebook) -> None:
    book.folder.mkdir()
    book.path(ABOUT).write_text(json.dumps([by(STRANGER, HAVE).encode(), by(B, HAVE).encode()]))

    assert list((await book.case(ABOUT)).haves) == [B.address]


async def test_a_forgotten_case_is_still_on_disk_until_it_is_deleted(book: Casebook) -> None:
    await book.add(ABOUT, [by(A, HAVE)], PEER)
    book.forget(ABOUT)
    assert book.cases == {}
    assert [m.message for m in await book.closed(ABOUT)] == [HAVE]

    book.delete(ABOUT)
    book.delete(ABOUT)
    assert await book.closed(ABOUT) == []


async def test_a_file_of_another_name_is_no_case_when_it_lies_among_them(book: Casebook) -> None:
    await book.add(ABOUT, [by(A, HAVE)], PEER)
    for name in ("z" * 64, "notes", ABOUT.hex().replace("0", "G"), "0x" + "1" * 62):
        (book.folder / f"{name}.json").write_bytes(b"[]")

    assert book.on_disk() == [ABOUT]
