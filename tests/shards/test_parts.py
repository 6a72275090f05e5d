"""Which chunks of the whole sources are whose, for all who receive at the same time."""

from collections import Counter

import numpy as np
from blake3 import blake3

from node.shards.parts import Parts, keys_of, scores
from node.shards.wanted import Flight, Kind, Wanted

DIGESTS = [blake3(bytes([n % 256, n // 256])).digest() for n in range(800)]
KEYS = keys_of(DIGESTS)
NOTHING, ALL = bytes(100), b"\xff" * 100
MEMBERS = [f"http://node-{n}" for n in range(8)]


def parts(me: str | None, bitmaps: dict[str, bytes]) -> Parts:
    found = Parts(KEYS, lambda: me, list)
    found.see(bitmaps)
    return found


def everybody(but: str) -> dict[str, bytes]:
    return {"http://origin": ALL, **{each: NOTHING for each in MEMBERS if each != but}}


def test_a_score_is_what_splitmix64_makes_of_key_and_name() -> None:
    def mixed(value: int) -> int:
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        return value ^ (value >> 31)

    name = int.from_bytes(blake3(b"http://a").digest()[:8], "little")
    key = int.from_bytes(DIGESTS[3][:8], "little")
    assert scores(["http://a"], KEYS)[0, 3] == mixed(key ^ name)


def test_every_chunk_is_of_one_member_and_all_agree_when_they_know_each_other() -> None:
    owned = [parts(me, everybody(me)).sort(range(800))[Kind.OWN] for me in MEMBERS]

    assert sorted(number for each in owned for number in each) == list(range(800))
    assert all(70 < len(each) < 130 for each in owned)


def test_what_is_waited_for_is_asked_of_its_owner_in_the_owners_own_order() -> None:
    mine, others = (parts(me, everybody(me)) for me in MEMBERS[:2])
    awaited = mine.sort(range(800))[Kind.AWAITED]
    theirs = others.sort(range(800))[Kind.OWN]

    assert [number for number in awaited if mine.sources(Kind.AWAITED, number, MEMBERS) == [MEMBERS[1]]] == theirs


def test_the_first_chunks_are_the_same_when_the_others_are_not_known_yet() -> None:
    alone, together = (parts(MEMBERS[0], known) for known in ({"http://origin": ALL}, everybody(MEMBERS[0])))
    first = alone.sort(range(800))[Kind.OWN][-10:]

    assert sum(number in together.sort(range(800))[Kind.OWN] for number in first) >= 8


def test_only_the_part_of_who_leaves_changes_hands() -> None:
    before = [set(parts(me, everybody(me)).sort(range(800))[Kind.OWN]) for me in MEMBERS]
    left = {each: bits for each, bits in everybody("").items() if each != MEMBERS[3]}
    for number, me in enumerate(MEMBERS):
        if number != 3:
            now = set(parts(me, {each: bits for each, bits in left.items() if each != me}).sort(range(800))[Kind.OWN])
            assert before[number] <= now <= before[number] | before[3]


def test_the_rarest_of_what_members_offer_comes_first_and_is_not_asked_of_the_origin() -> None:
    rare, common = bytes([0b11]) + bytes(99), bytes([0b01]) + bytes(99)
    found = parts(MEMBERS[0], {"http://origin": ALL, MEMBERS[1]: rare, MEMBERS[2]: common})

    assert found.sort(range(800))[Kind.OFFERED] == [0, 1]  # the next one last
    assert found.sources(Kind.OFFERED, 1, ["http://origin", *MEMBERS]) == [MEMBERS[1]]


def test_what_nobody_has_is_asked_of_anybody_in_order() -> None:
    found = parts(MEMBERS[0], {MEMBERS[1]: NOTHING})

    assert found.sort([5, 3, 700])[Kind.UNSEEN] == [700, 5, 3]
    assert found.sources(Kind.UNSEEN, 3, MEMBERS) == MEMBERS


def test_a_node_that_nobody_can_ask_waits_for_the_parts_of_others() -> None:
    assert parts(None, everybody("")).sort(range(800))[Kind.OWN] == []
    assert len(parts(None, {"http://origin": ALL}).sort(range(800))[Kind.OWN]) == 800


def waited(found: Parts, number: int, member: str) -> None:
    found.in_vain(Flight(Wanted(number, 0, number, DIGESTS[number], 1, 1), member, 2, Kind.AWAITED, 0.0))


def test_a_chunk_is_fetched_here_when_its_owner_did_not_hand_it_on() -> None:
    found = parts(MEMBERS[0], everybody(MEMBERS[0]))
    number = found.sort(range(800))[Kind.AWAITED][0]

    waited(found, number, MEMBERS[1])

    assert found.sort(range(800))[Kind.OWN][-1] == number  # before all others


def test_a_member_has_no_part_any_more_when_it_was_waited_for_in_vain_three_times() -> None:
    found = parts(MEMBERS[0], {"http://origin": ALL, MEMBERS[1]: NOTHING})
    awaited = found.sort(range(800))[Kind.AWAITED]
    for number in awaited[:3]:
        assert len(found.sort(range(800))[Kind.OWN]) < 800
        waited(found, number, MEMBERS[1])

    assert len(found.sort(range(800))[Kind.OWN]) == 800


def test_a_member_keeps_its_part_when_it_handed_on_more_than_it_failed_to() -> None:
    found = parts(MEMBERS[0], {"http://origin": ALL, MEMBERS[1]: NOTHING})
    for number in found.sort(range(800))[Kind.AWAITED][:4]:
        found.came(Flight(Wanted(number, 0, number, DIGESTS[number], 1, 1), MEMBERS[1], 2, Kind.AWAITED, 0.0))
    for number in found.sort(range(800))[Kind.AWAITED][:3]:
        waited(found, number, MEMBERS[1])

    assert Counter(len(each) > 0 for each in found.sort(range(800)).values())[True] == 2


def test_nothing_is_shared_out_when_there_are_no_chunks() -> None:
    assert all(not each for each in parts(MEMBERS[0], everybody(MEMBERS[0])).sort([]).values())
    assert scores(MEMBERS, np.array([], dtype=np.uint64)).shape == (8, 0)
