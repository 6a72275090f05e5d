"""What is remembered of announcements: all that the limits admit, for as long as it could come again."""

from dataclasses import dataclass, field

from node.p2p.seen import LITTLE, MAX_SEEN, OWN, Seen

ALL = 3_200  # of one node in 600 s: a burst of 200, and 5 a second


@dataclass
class Scene:
    now: float = 0.0
    seen: Seen = field(init=False)

    def __post_init__(self) -> None:
        self.seen = Seen(lambda: self.now)


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_what_twenty_nodes_may_say_in_ten_minutes_pushes_nothing_out() -> None:
    scene = Scene()

    for number in range(20 * ALL):
        scene.now = 600 * number / (20 * ALL)
        assert scene.seen.add(digest(number), f"node {number % 20}")

    assert all(digest(number) in scene.seen for number in range(20 * ALL))


def test_a_message_is_forgotten_when_it_would_be_refused_for_its_age() -> None:
    """Heard 300 s before its own time, it is taken until 300 s after it."""
    scene = Scene()
    scene.seen.add(digest(1), "a node")

    scene.now = 600.0
    scene.seen.add(digest(2), "a node")
    assert digest(1) in scene.seen

    scene.now = 600.1
    scene.seen.add(digest(3), "another")
    assert digest(1) not in scene.seen and len(scene.seen.digests) == 2
    assert scene.seen.by_origin == {"a node": 1, "another": 1}


def test_where_there_is_no_room_who_says_much_is_refused_and_who_says_little_is_heard() -> None:
    seen = Scene().seen

    taken = sum(seen.add(digest(number), "much") for number in range(MAX_SEEN))

    assert taken == MAX_SEEN // 2
    assert [seen.add(digest(MAX_SEEN + number), "little") for number in range(LITTLE + 1)] == [True] * LITTLE + [False]


def test_there_is_room_for_what_this_node_says_when_others_have_taken_all() -> None:
    seen = Scene().seen
    for number in range(MAX_SEEN):
        seen.add(digest(number), f"node {number // LITTLE}")

    assert not seen.add(digest(MAX_SEEN), "another")
    assert all(seen.add(digest(MAX_SEEN + number), OWN) for number in range(1, ALL))
