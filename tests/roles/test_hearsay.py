"""What is kept of announcements until it is looked at, whoever announces how much."""

import asyncio

from ledger.base import Address, Digest
from node.p2p.announcements import Announcement, Verdicts, announce, parse
from node.p2p.identity import make_statement
from node.roles.hearsay import MAX_TOLD, Hearsay
from tests.p2p.parts import BLOCK_TIME, SCOPE, STAKING, account, peer_of, secret

ONE, OTHER, STRANGER = 1, 2, 3


def address(number: int) -> Address:
    return Address(account(number).address)


def say(to: Hearsay, number: int, text: bytes) -> None:
    news = Verdicts(Digest(bytes(32)), text)
    statement = make_statement(account(number), STAKING, peer_of(number), BLOCK_TIME)
    said: Announcement = parse(announce(news, SCOPE, secret(number), statement, 1), SCOPE)
    to.put(said, news)


async def test_what_a_validator_says_is_heard_however_much_others_said_before_it() -> None:
    hearsay = Hearsay([address(ONE), address(OTHER)])
    for n in range(MAX_TOLD + 4):
        say(hearsay, STRANGER, b"%d" % n)
        say(hearsay, OTHER, b"%d" % n)
    say(hearsay, ONE, b"heard")

    heard = [await hearsay.next() for _ in range(MAX_TOLD + 1)]

    assert [text.messages for who, text in heard if who == address(OTHER)] == [b"%d" % n for n in range(MAX_TOLD)]
    assert [text.messages for who, text in heard[:2] if who == address(ONE)] == [b"heard"]


async def test_who_waits_hears_what_is_said_next() -> None:
    hearsay = Hearsay([address(ONE)])
    waiting = asyncio.create_task(hearsay.next())
    await asyncio.sleep(0)
    say(hearsay, STRANGER, b"nothing")
    await asyncio.sleep(0.01)
    assert not waiting.done()

    say(hearsay, ONE, b"heard")

    assert (await asyncio.wait_for(waiting, 1))[1].messages == b"heard"
