import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from node.errors import ConfigError, Malformed
from node.training.hyper import Hyper
from node.training.step import Learner

HYPER = Hyper(learning_rate=1e-3)
BETA_1 = HYPER.beta_1
TEMPERATURE = 0.7


def ignore(done, total):
    pass


def tensors_after(learner, root):
    return load_file(learner.save_state(root) / "state.safetensors")


def gradient_after_one_step(learner, root):
    """Adam's first moment after one step from zero is (1 - beta 1) times the gradient."""
    found = tensors_after(learner, root)
    return {
        name.removeprefix("exp_avg/"): value / (1 - BETA_1)
        for name, value in found.items()
        if name.startswith("exp_avg/")
    }


@pytest.fixture
def groups(make_group):
    """Two groups with a gradient, of outputs of different lengths, and one without."""
    return [
        make_group([1.0, 0.0, 0.5], prompt=(1, 2, 3, 4), outputs=[(9, 8, 7, 6, 5, 4, 3), (1,), (44, 45, 46)]),
        make_group([0.0, 0.0, 1.0], prompt=(60, 2), outputs=[(10, 11), (12, 13, 14, 15), (16, 17, 18)], group=1),
        make_group([1.0, 1.0, 1.0], prompt=(30, 31), group=2),
    ]


def plain_gradient(base, groups, temperature):
    """Full batch, no packing, no chunks, float32: mean over tokens of -A log p, which has the gradient at rho = 1."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    terms = []
    for group in groups:
        mean = sum(group.rewards) / len(group.rewards)
        for rollout, reward in zip(group.rollouts, group.rewards, strict=True):
            logits = model(torch.tensor([rollout.prompt_ids + rollout.output_ids])).logits[0]
            for k, token in enumerate(rollout.output_ids):
                row = logits[len(rollout.prompt_ids) - 1 + k] / temperature
                terms.append(-(reward - mean) * torch.log_softmax(row, -1)[token])
    torch.stack(terms).mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("micro_batch_tokens", "head_chunk_tokens"), [(1, 256), (14, 3), (26, 5), (1024, 256)])
def test_a_step_follows_the_plain_full_batch_gradient_whatever_the_split(
    base, groups, tmp_path, micro_batch_tokens, head_chunk_tokens
):
    hyper = replace(
        HYPER, micro_batch_tokens=micro_batch_tokens, head_chunk_tokens=head_chunk_tokens, max_gradient_norm=1e9
    )
    learner = Learner(base, hyper, TEMPERATURE, threads=1)
    report = learner.step(groups, ignore)

    found = gradient_after_one_step(learner, tmp_path)
    expected = plain_gradient(base, groups[:2], TEMPERATURE)

    assert report.tokens == 7 + 1 + 3 + 2 + 4 + 3
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() < 0.05 * gradient.norm(), name
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in expected.values()))
    assert report.grad_norm == pytest.approx(norm, rel=0.02)


def test_the_gradient_is_clipped_to_the_given_norm(base, groups, tmp_path):
    learner = Learner(base, replace(HYPER, max_gradient_norm=1e-3), TEMPERATURE, threads=1)
    learner.step(groups, ignore)

    found = gradient_after_one_step(learner, tmp_path)

    assert math.sqrt(sum(float(value.square().sum()) for value in found.values())) == pytest.approx(1e-3, rel=1e-3)


def test_the_first_adam_step_moves_every_weight_by_the_learning_rate(base, groups, tmp_path):
    learner = Learner(base, replace(HYPER, max_gradient_norm=1e9), TEMPERATURE, threads=1)
    before = {name: value for name, value in tensors_after(learner, tmp_path).items() if name.startswith("weight/")}
    learner.step(groups, ignore)
    after = tensors_after(learner, tmp_path)

    for name, weight in before.items():
        gradient = after[name.replace("weight/", "exp_avg/")] / (1 - BETA_1)
        clear = gradient.abs() > 1e-5  # far above Adam's epsilon
        torch.testing.assert_close((after[name] - weight)[clear], -1e-3 * gradient[clear].sign(), rtol=2e-3, atol=1e-7)


def test_groups_with_equal_rewards_neither_pull_nor_dilute(base, groups, tmp_path):
    with_it, without = (Learner(base, HYPER, TEMPERATURE, threads=1) for _ in range(2))

    report = with_it.step(groups, ignore)
    other = without.step(groups[:2], ignore)

    assert (report.loss, report.grad_norm, report.tokens) == (other.loss, other.grad_norm, other.tokens)
    assert report.mean_reward == pytest.approx((1.5 + 1.0 + 3.0) / 9)
    assert with_it.consumed == {group.id for group in groups}
    assert state_equal(tensors_after(with_it, tmp_path / "a"), tensors_after(without, tmp_path / "b"))


def state_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_batch_without_any_gradient_changes_no_weight_and_says_so(base, make_group, tmp_path):
    learner = Learner(base, HYPER, TEMPERATURE, threads=1)
    before = tensors_after(learner, tmp_path)

    report = learner.step([make_group([1.0, 1.0]), make_group([0.0, 0.0], group=1)], ignore)

    assert (report.skipped, report.tokens, report.mean_reward) == ("no group has rewards that differ", 0, 0.5)
    assert (learner.version, len(learner.consumed)) == (1, 2)
    assert state_equal(tensors_after(learner, tmp_path), before)


def test_a_gradient_that_is_not_finite_changes_no_weight_and_says_so(base, make_group, tmp_path):
    learner = Learner(base, HYPER, TEMPERATURE, threads=1)
    before = tensors_after(learner, tmp_path)

    report = learner.step([make_group([3.4e38, 0.0])], ignore)

    assert report.skipped == "1 of 1 gradients were not finite"
    assert not math.isfinite(report.grad_norm)
    assert state_equal(tensors_after(learner, tmp_path), before)
    assert learner.step([make_group([1.0, 0.0], commitment=2)], ignore).skipped is None


def test_several_optimiser_steps_share_the_old_logprobs_of_the_first(base, groups):
    """The second step's ratio is no longer 1: it is measured against the weights at the start of the batch."""
    hyper = replace(HYPER, learning_rate=0.05, optimizer_steps=2)
    report = Learner(base, hyper, TEMPERATURE, threads=1).step(groups, ignore)
    one_step = Learner(base, replace(hyper, optimizer_steps=1), TEMPERATURE, threads=1).step(groups, ignore)

    assert report.clip_share > 0
    assert one_step.clip_share == 0
    assert report.tokens == one_step.tokens


def test_the_kl_term_starts_at_zero_and_the_entropy_term_does_not(base, groups):
    def loss(**options):
        return Learner(base, replace(HYPER, **options), TEMPERATURE, threads=1).step(groups, ignore).loss

    assert loss(kl=0.5) == pytest.approx(loss(), abs=1e-6)
    assert loss(entropy=0.5) < loss() - 0.5  # more than one nat a token in this model


def test_the_kl_term_grows_as_the_policy_leaves_its_base(base, groups):
    learner = Learner(base, replace(HYPER, kl=1.0, learning_rate=0.02), TEMPERATURE, threads=1)
    plain = Learner(base, replace(HYPER, kl=0.0, learning_rate=0.02), TEMPERATURE, threads=1)
    for each in (learner, plain):
        each.step(groups, ignore)

    assert learner.step(groups, ignore).loss > plain.step(groups, ignore).loss + 0.01


def test_progress_counts_the_output_tokens(base, groups):
    seen = []
    hyper = replace(HYPER, micro_batch_tokens=1)
    Learner(base, hyper, TEMPERATURE, threads=1).step(groups, lambda done, total: seen.append((done, total)))

    assert seen == [(7, 20), (10, 20), (14, 20), (15, 20), (18, 20), (20, 20)]


@pytest.mark.parametrize("output", [(64,), (-1,), (), tuple(range(60)) * 3])
def test_tokens_that_the_model_does_not_have_are_refused_before_anything_changes(base, make_group, output):
    learner = Learner(base, HYPER, TEMPERATURE, threads=1)

    with pytest.raises(Malformed, match="00000001"):
        learner.step([make_group([1.0, 0.0], outputs=[(1, 2), output])], ignore)

    assert (learner.version, learner.consumed) == (0, frozenset())


def test_updates_too_small_for_bfloat16_add_up_in_the_masters(base, groups, tmp_path):
    """At 2e-6 a weight of 0.2 needs some 240 equal steps to reach the next bfloat16: one step alone is lost."""
    learner = Learner(base, replace(HYPER, learning_rate=2e-6), TEMPERATURE, threads=1)
    name = "model.layers.0.mlp.down_proj.weight"
    learner.export(tmp_path / "v0")
    learner.step(groups, ignore)
    learner.export(tmp_path / "v1")
    once = tensors_after(learner, tmp_path / "states")[f"weight/{name}"]
    for _ in range(59):
        learner.step(groups, ignore)
    learner.export(tmp_path / "v60")

    first, second, last = (load_file(tmp_path / v / "model.safetensors")[name] for v in ("v0", "v1", "v60"))
    moved_in_masters = once != first.float()
    changed_at_once, changed_later = first != second, first != last

    assert moved_in_masters.float().mean() > 0.9
    assert changed_at_once.float().mean() < 0.05
    assert changed_later.float().mean() > 5 * changed_at_once.float().mean()
    assert (changed_later & ~changed_at_once & moved_in_masters).float().mean() > 0.1


def test_the_thread_count_of_others_is_left_alone(base, groups):
    Learner(base, HYPER, TEMPERATURE, threads=2).step(groups, ignore)

    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    "options",
    [{"learning_rate": 0.0}, {"delta": 1.2}, {"beta_2": 1.0}, {"optimizer_steps": 0}, {"kl": float("nan")}],
)
def test_hyperparameters_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        replace(HYPER, **options)
