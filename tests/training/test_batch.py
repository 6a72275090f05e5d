import random

import pytest

from ledger.base import Version
from node.errors import ConfigError
from node.training.batch import BatchRule, GroupId, window


def ids(groups):
    return [(int.from_bytes(group.commitment, "big"), group.group) for group in groups]


@pytest.mark.parametrize(
    ("version", "async_level", "expected"),
    [(1, 2, [0]), (2, 2, [0, 1]), (3, 2, [0, 1, 2]), (4, 2, [1, 2, 3]), (10, 2, [7, 8, 9]), (5, 0, [4])],
)
def test_the_window_is_the_protocols(version, async_level, expected):
    assert list(window(version, async_level)) == expected


def test_newer_versions_come_first_when_there_is_more_than_a_batch(make_group):
    rule = BatchRule(rollouts=4, group_size=2, async_level=2, max_provider_share=1.0)
    groups = [make_group([0, 1], commitment=c, version=v) for c, v in [(1, 7), (2, 9), (3, 8), (4, 9)]]

    assert ids(rule.select(groups, set(), Version(10))) == [(2, 0), (4, 0)]


def test_the_order_of_arrival_does_not_matter(make_group):
    rule = BatchRule(rollouts=8, group_size=2, async_level=2, max_provider_share=0.5)
    groups = [
        make_group([0, 1], commitment=c, group=g, version=c % 3, provider=f"0x{c % 4}")
        for c in range(6)
        for g in range(3)
    ]
    expected = rule.select(groups, set(), Version(3))
    shuffled = random.Random(1).sample(groups, len(groups))

    assert rule.select(shuffled + groups[:5], set(), Version(3)) == expected
    assert len(expected) == 4


def test_groups_outside_the_window_or_consumed_are_left(make_group):
    rule = BatchRule(rollouts=8, group_size=2, async_level=1, max_provider_share=1.0)
    old, taken, fresh, future = (
        make_group([0, 1], commitment=c, version=v) for c, v in [(1, 2), (2, 3), (3, 4), (4, 5)]
    )

    chosen = rule.select([old, taken, fresh, future], {GroupId(taken.commitment, 0)}, Version(5))

    assert ids(chosen) == [(3, 0)]


def test_two_groups_of_one_commitment_stay_two(make_group):
    rule = BatchRule(rollouts=4, group_size=2, async_level=2, max_provider_share=1.0)
    same_prompt = [make_group([0, 1], group=g) for g in (0, 1)]

    chosen = rule.select(same_prompt, set(), Version(1))

    assert [group.id for group in chosen] == [group.id for group in same_prompt]


def test_a_provider_with_many_nodes_gets_its_share_only(make_group):
    rule = BatchRule(rollouts=8, group_size=2, async_level=2, max_provider_share=0.5)
    greedy = [make_group([0, 1], commitment=c, provider="0xA") for c in range(1, 6)]
    other = [make_group([0, 1], commitment=c, provider="0xB") for c in (10, 11, 12)]

    assert ids(rule.select(greedy + other, set(), Version(1))) == [(1, 0), (2, 0), (10, 0), (11, 0)]


def test_groups_without_a_gradient_are_consumed_like_others(make_group):
    rule = BatchRule(rollouts=2, group_size=2, async_level=2, max_provider_share=1.0)

    assert ids(rule.select([make_group([1, 1])], set(), Version(1))) == [(1, 0)]


@pytest.mark.parametrize(
    ("rollouts", "group_size", "share", "message"),
    [(30, 8, 1.0, "whole groups"), (64, 8, 0.1, "at least 80 rollouts"), (0, 8, 1.0, "whole groups")],
)
def test_a_batch_that_could_never_fill_is_refused(rollouts, group_size, share, message):
    with pytest.raises(ConfigError, match=message):
        BatchRule(rollouts, group_size, async_level=2, max_provider_share=share)


def test_a_group_with_a_reward_that_is_no_number_is_refused(make_group):
    with pytest.raises(ValueError, match="finite"):
        make_group([0.0, float("nan")])
