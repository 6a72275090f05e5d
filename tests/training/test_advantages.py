import numpy as np
import pytest

from node.training.advantages import group_advantages, is_informative


def test_advantages_are_the_distance_from_the_mean():
    np.testing.assert_array_equal(group_advantages([1.0, 0.0, 0.0, 1.0, 0.5]), [0.5, -0.5, -0.5, 0.5, 0.0])


def test_by_std_divides_by_the_unbiased_deviation():
    # mean 0.25, squared distances 9/16 + 3 * 1/16 = 3/4, over n - 1 = 3: std 0.5
    expected = np.array([0.75, -0.25, -0.25, -0.25]) / 0.500001
    np.testing.assert_allclose(group_advantages([1.0, 0.0, 0.0, 0.0], by_std=True), expected, rtol=1e-12)


@pytest.mark.parametrize("by_std", [False, True])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e9])
def test_equal_rewards_give_exact_zeros_where_their_mean_rounds(reward, by_std):
    np.testing.assert_array_equal(group_advantages([reward] * 7, by_std), np.zeros(7))
    assert not is_informative([reward] * 7)


def test_a_group_of_one_has_no_advantage():
    np.testing.assert_array_equal(group_advantages([1.0], by_std=True), [0.0])
