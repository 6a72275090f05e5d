"""What is remembered of announcements, and for how long."""

from dataclasses import dataclass, replace

from ledger.base import Address, Digest
from node.p2p.addresses import PeerAddress, peer_id
from node.p2p.announcements import Announcement, Heartbeat, Held, News, Offers
from node.p2p.book import LIVE_SECONDS, MAX_HOLDERS, MAX_OFFERS, Book
from node.p2p.identity import Statement
from node.p2p.keys import public_key_of
from node.p2p.limits import MAX_NODES
from tests.p2p.parts import secret

FIRST_KEEPER = 1 << 32  # the number of the first node that is to hold every file
PEER = peer_id(public_key_of(secret(1)))
HERE = PeerAddress("203.0.113.7", 4001, PEER)


@dataclass
class Scene:
    now: float = 1000.0
    closed: frozenset[Digest] = frozenset()

    def book(self) -> Book:
        return Book(
            lambda: self.now,
            lambda commitment: commitment not in self.closed,
            lambda _, who: int(who, 16) >= FIRST_KEEPER,
        )


def said(number: int, news: News, at: float = 1000.0) -> Announcement:
    statement = Statement(Address(f"0x{number:040x}"), 0, b"")
    return Announcement(news, int(at * 1000), PEER, statement, b"")


def digest(number: int) -> Digest:
    return Digest(number.to_bytes(32, "big"))


def test_a_node_is_live_until_its_heartbeats_stop() -> None:
    scene = Scene()
    book = scene.book()
    book.add(said(1, Heartbeat("http://a:1", (HERE,))))

    assert (book.endpoints(), book.addresses()) == ({Address(f"0x{1:040x}"): "http://a:1"}, [HERE])
    scene.now += LIVE_SECONDS
    assert (book.endpoints(), book.addresses(), book.live()) == ({}, [], [])
    book.forget(lambda _: True)
    assert not book.heartbeats


def test_what_a_node_said_before_does_not_replace_what_it_said_last() -> None:
    """Whoever recorded an older heartbeat cannot take a node back to where it was."""
    book = Scene().book()

    assert book.add(said(1, Heartbeat("http://new:1", ()), at=1001))
    assert not book.add(said(1, Heartbeat("http://old:1", ()), at=1000))

    assert list(book.endpoints().values()) == ["http://new:1"]


def test_an_address_of_another_peer_is_not_dialled_on_a_nodes_word() -> None:
    other = PeerAddress("203.0.113.7", 4001, peer_id(public_key_of(secret(2))))
    book = Scene().book()

    book.add(said(1, Heartbeat("", (other,))))

    assert book.addresses() == []


def test_only_files_of_open_submissions_are_remembered_with_a_few_holders() -> None:
    book = Scene(closed=frozenset({digest(9)})).book()

    for number in range(MAX_HOLDERS + 3):
        book.add(said(number, Offers((digest(1), digest(9)))))

    assert len(book.holders(digest(1))) == MAX_HOLDERS
    assert book.holders(digest(9)) == ()


def test_those_who_are_to_hold_a_file_are_remembered_however_many_others_said_so_first() -> None:
    scene = Scene()
    book = scene.book()
    keepers = [FIRST_KEEPER + number for number in range(MAX_HOLDERS)]

    for seconds in range(10):
        scene.now += seconds
        for number in range(MAX_HOLDERS):
            book.add(said(number, Offers((digest(1),)), at=scene.now + number))
        book.add(said(keepers[0], Offers((digest(1),)), at=scene.now))
        assert node(keepers[0]) in book.holders(digest(1))
        assert node(0) not in book.holders(digest(1))  # of whom it was longest ago
    for keeper in (*keepers, FIRST_KEEPER + MAX_HOLDERS):
        book.add(said(keeper, Offers((digest(1),)), at=scene.now))

    assert sorted(book.holders(digest(1))) == [node(keeper) for keeper in keepers]  # none displaces its like


def test_what_is_remembered_is_bounded() -> None:
    book = Scene().book()

    for number in range(MAX_NODES + 10):
        book.add(said(number, Heartbeat("http://a:1", ())))
        book.add(said(number, Held(digest(number), 1, b"\x01")))
    for start in range(0, MAX_OFFERS + 1000, 1000):
        book.add(said(1, Offers(tuple(map(digest, range(start, start + 1000))))))

    assert (len(book.heartbeats), len(book.held), len(book.offers)) == (MAX_NODES, MAX_NODES, MAX_OFFERS)


def test_a_node_that_leaves_the_run_is_forgotten() -> None:
    book = Scene().book()
    book.add(said(1, Heartbeat("http://a:1", ())))
    book.add(said(1, Held(digest(5), 1, b"\x01")))

    book.forget(lambda _: False)

    assert (book.endpoints(), book.having(digest(5))) == ({}, ())


def test_what_a_node_holds_counts_for_five_minutes_and_is_forgotten_then() -> None:
    scene = Scene(now=1000.0)
    book = scene.book()
    book.add(said(1, Held(digest(5), 1, b"\x01")))
    book.add(said(1, Offers((digest(1),))))
    book.add(said(2, Offers((digest(1),)), at=1100.0))

    scene.now = 1299.0
    assert (book.having(digest(5)), book.holders(digest(1))) == ((node(1),), (node(1), node(2)))
    scene.now = 1300.0
    assert (book.having(digest(5)), book.holders(digest(1))) == ((), (node(2),))
    scene.now = 1400.0
    book.forget(lambda _: True)
    assert not book.held and not book.offers


def test_a_file_whose_submission_is_final_is_forgotten() -> None:
    scene = Scene()
    book = scene.book()
    book.add(said(1, Offers((digest(1), digest(2)))))

    scene.closed = frozenset({digest(1)})
    book.forget(lambda _: True)

    assert list(book.offers) == [digest(2)]


def test_who_says_that_it_holds_nothing_any_more_is_not_among_the_holders() -> None:
    book = Scene().book()
    for number, bitmap in ((1, b"\x03\x00"), (2, b"\xff\x01"), (1, b"\x00\x00")):
        book.add(said(number, Held(digest(5), 9, bitmap)))

    assert book.having(digest(5)) == (node(2),)


def test_a_node_moves_three_times_at_once_and_then_once_a_minute() -> None:
    """Others connect to where it says that it is: a node that names one door after another would have them knock."""
    scene = Scene()
    book = scene.book()

    taken = [book.add(said(1, Heartbeat("", (replace(HERE, port=port),)))) for port in range(1, 11)]
    assert taken == [True] * 3 + [False] * 7
    assert [address.port for address in book.addresses()] == [3]
    assert book.add(said(1, Heartbeat("", (replace(HERE, port=3),))))  # where it was: that it lives is heard
    assert book.add(said(2, Heartbeat("", (replace(HERE, port=9),))))

    scene.now += 61
    assert [book.add(said(1, Heartbeat("", (replace(HERE, port=port),)), at=1061)) for port in (4, 5)] == [True, False]


def test_another_peer_id_at_the_same_address_is_a_move() -> None:
    book = Scene().book()
    peers = [peer_id(public_key_of(secret(number))) for number in range(1, 6)]

    taken = [book.add(replace(said(1, Heartbeat("", (replace(HERE, peer=peer),))), peer=peer)) for peer in peers]

    assert taken == [True] * 3 + [False] * 2


def node(number: int) -> Address:
    return Address(f"0x{number:040x}")
