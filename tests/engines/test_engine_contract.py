"""What every engine promises, over the scripted one, transformers and vLLM with a tiny model.

Batches hold five rows and groups have three, so that groups are split between batches.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hashing.comparison import compare_all
from node.engines.base import Engine, Policy
from node.engines.changes import changes_between
from node.errors import EngineError
from node.rollouts.rollout import FINISH_EOS, FINISH_LENGTH, Replay, Rollout, Sample

MakeEngine = Callable[[Policy], Engine]

SEED, OTHER_SEED = b"\x07" * 32, b"\x08" * 32
PROMPTS = [(0, 4, 70, 71, 5), (0, 4, 90, 5), (0, 4, *range(100, 130), 5)]
SOME_IDS = frozenset(range(0, 12))  # as EOS ids, they end a row of a model that knows nothing after 22 tokens
POLICY = Policy(temperature=1.0, max_output_tokens=40, eos_ids=SOME_IDS, group_size=3)
COLD = replace(POLICY, temperature=0.05)
ONE_TOKEN = Policy(temperature=1.0, max_output_tokens=1, eos_ids=frozenset(range(1, 264)), group_size=3)


def quiet(_done: int, _total: int) -> None:
    return None


def rollouts(samples: list[Sample], prompts: list[tuple[int, ...]] = PROMPTS, size: int = 3) -> list[Rollout]:
    return [
        Rollout(k // size, k % size, prompts[k // size], s.output_ids, s.logprobs, s.proofs, s.finish, 0.0)
        for k, s in enumerate(samples)
    ]


def mean_deficit(replays: list[Replay]) -> float:
    return float(np.concatenate([replay.deficits for replay in replays]).mean())


def worst_mismatches(samples: list[Sample], replays: list[Replay]) -> int:
    pairs = zip(samples, replays, strict=True)
    return max(d.exponent_mismatches for s, r in pairs for d in compare_all(s.proofs, r.hidden_bits))


def test_generate_gives_the_same_samples_when_the_seed_is_the_same(make_engine: MakeEngine) -> None:
    engine = make_engine(POLICY)

    assert engine.generate(SEED, PROMPTS, quiet) == engine.generate(SEED, PROMPTS, quiet)


def test_generate_gives_group_size_samples_of_each_prompt(make_engine: MakeEngine) -> None:
    assert len(make_engine(POLICY).generate(SEED, PROMPTS, quiet)) == 9


def test_rows_of_one_prompt_differ_because_their_noise_does(make_engine: MakeEngine) -> None:
    samples = make_engine(POLICY).generate(SEED, PROMPTS[:1], quiet)

    assert len({sample.output_ids for sample in samples}) == 3


def test_another_seed_gives_other_samples(make_engine: MakeEngine) -> None:
    engine = make_engine(POLICY)

    ours = [s.output_ids for s in engine.generate(SEED, PROMPTS, quiet)]
    others = [s.output_ids for s in engine.generate(OTHER_SEED, PROMPTS, quiet)]

    assert sum(a == b for a, b in zip(ours, others, strict=True)) <= 2


def test_every_row_ends_with_an_eos_id_or_at_the_limit(make_engine: MakeEngine) -> None:
    samples = make_engine(POLICY).generate(SEED, PROMPTS * 3, quiet)

    for sample in samples:
        assert not SOME_IDS & set(sample.output_ids[:-1])
        if sample.finish == FINISH_EOS:
            assert sample.output_ids[-1] in SOME_IDS
        else:
            assert (sample.finish, len(sample.output_ids)) == (FINISH_LENGTH, 40)
            assert sample.output_ids[-1] not in SOME_IDS
        assert len(sample.logprobs) == len(sample.output_ids)
        assert len(sample.proofs) == -(-len(sample.output_ids) // 32)
    assert {sample.finish for sample in samples} == {FINISH_EOS, FINISH_LENGTH}


def test_one_token_outputs_have_a_proof_and_can_be_replayed(make_engine: MakeEngine) -> None:
    engine = make_engine(ONE_TOKEN)

    samples = engine.generate(SEED, PROMPTS, quiet)
    replays = engine.replay(SEED, rollouts(samples), quiet)

    assert {(len(s.output_ids), len(s.proofs)) for s in samples} == {(1, 1)}
    assert worst_mismatches(samples, replays) <= 2
    assert [replay.deficits.shape for replay in replays] == [(1,)] * 9


def test_an_eos_id_as_last_permitted_token_counts_as_an_end(make_engine: MakeEngine) -> None:
    samples = make_engine(ONE_TOKEN).generate(SEED, PROMPTS, quiet)

    assert {sample.finish for sample in samples if sample.output_ids[0]} == {FINISH_EOS}


def test_replay_of_ones_own_samples_agrees_with_them(make_engine: MakeEngine) -> None:
    engine = make_engine(POLICY)
    samples = engine.generate(SEED, PROMPTS, quiet)

    replays = engine.replay(SEED, rollouts(samples), quiet)

    for sample, replay in zip(samples, replays, strict=True):
        assert replay.hidden_bits.shape == (len(sample.output_ids), 128)
        assert (replay.hidden_bits.dtype, replay.logprobs.dtype) == (np.uint16, np.float32)
        np.testing.assert_allclose(replay.logprobs, sample.logprobs, atol=0.02)
        assert (replay.gaps >= 0).all()
        assert ((replay.deficits == 0) | (replay.deficits < 0.02)).all()
    assert np.mean(np.concatenate([replay.deficits for replay in replays]) == 0) > 0.97
    assert worst_mismatches(samples, replays) <= 12


def test_replay_does_not_depend_on_what_else_is_replayed(make_engine: MakeEngine) -> None:
    engine = make_engine(POLICY)
    mixed = rollouts(engine.generate(SEED, PROMPTS, quiet))
    mixed.reverse()

    together = engine.replay(SEED, mixed, quiet)

    for rollout, replay in zip(mixed, together, strict=True):
        [alone] = engine.replay(SEED, [rollout], quiet)
        np.testing.assert_allclose(replay.logprobs, alone.logprobs, atol=0.02)
        np.testing.assert_allclose(replay.gaps, alone.gaps, atol=0.05)


def test_replay_under_another_seed_sees_tokens_that_its_noise_would_not_choose(make_engine: MakeEngine) -> None:
    engine = make_engine(POLICY)

    claimed = rollouts(engine.generate(SEED, PROMPTS, quiet))

    assert mean_deficit(engine.replay(OTHER_SEED, claimed, quiet)) > 2


def test_replay_sees_an_edited_token(make_engine: MakeEngine) -> None:
    engine = make_engine(POLICY)
    [first, *_] = rollouts(engine.generate(SEED, PROMPTS, quiet))
    ids = list(first.output_ids)
    ids[0] = ids[0] - 1 if ids[0] > 24 else 200
    edited = Rollout(0, 0, first.prompt_ids, tuple(ids), first.logprobs, first.proofs, first.finish, 0.0)

    assert engine.replay(SEED, [edited], quiet)[0].deficits[0] > 0.05


def test_prompts_of_ragged_lengths_give_what_each_gives_alone(make_engine: MakeEngine) -> None:
    engine = make_engine(POLICY)
    samples = engine.generate(SEED, PROMPTS, quiet)

    for alone in rollouts(samples):
        [replay] = engine.replay(SEED, [alone], quiet)
        np.testing.assert_allclose(replay.logprobs, alone.logprobs, atol=0.02)
        assert (replay.deficits < 0.02).all()


def test_a_low_temperature_sharpens_and_the_logprobs_say_so(make_engine: MakeEngine) -> None:
    hot = make_engine(POLICY).generate(SEED, PROMPTS, quiet)
    cold = make_engine(COLD).generate(SEED, PROMPTS, quiet)

    assert np.mean([p for s in cold for p in s.logprobs]) > np.mean([p for s in hot for p in s.logprobs]) + 1


def test_progress_ends_at_the_total(make_engine: MakeEngine) -> None:
    engine = make_engine(POLICY)
    generated: list[tuple[int, int]] = []
    replayed: list[tuple[int, int]] = []

    samples = engine.generate(SEED, PROMPTS, lambda done, total: generated.append((done, total)))
    engine.replay(SEED, rollouts(samples), lambda done, total: replayed.append((done, total)))

    tokens = sum(len(sample.output_ids) for sample in samples)
    assert (generated[-1], replayed[-1]) == ((tokens, tokens), (9, 9))
    assert [done for done, _ in generated] == sorted(done for done, _ in generated)
    assert all(done <= total <= 360 for done, total in generated)  # 9 rows of at most 40 tokens


def test_other_weights_give_other_samples_and_other_states(make_engine: MakeEngine, other_folder: Path) -> None:
    engine = make_engine(POLICY)
    samples = engine.generate(SEED, PROMPTS, quiet)

    engine.load(other_folder)

    assert engine.generate(SEED, PROMPTS, quiet) != samples
    assert worst_mismatches(samples, engine.replay(SEED, rollouts(samples), quiet)) > 64


def test_going_back_to_the_first_weights_gives_the_first_samples(
    make_engine: MakeEngine, tiny_folder: Path, other_folder: Path
) -> None:
    engine = make_engine(POLICY)
    samples = engine.generate(SEED, PROMPTS, quiet)

    engine.load(other_folder)
    engine.load(tiny_folder)

    assert engine.generate(SEED, PROMPTS, quiet) == samples


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_with_a_file_missing_is_refused_and_what_was_loaded_stays(
    make_engine: MakeEngine, tiny_folder: Path, tmp_path: Path, missing: str
) -> None:
    engine = make_engine(POLICY)
    samples = engine.generate(SEED, PROMPTS, quiet)
    broken = Path(shutil.copytree(tiny_folder, tmp_path / "broken"))
    (broken / missing).unlink()

    with pytest.raises(EngineError):
        engine.load(broken)

    assert engine.generate(SEED, PROMPTS, quiet) == samples


def test_an_engine_without_weights_says_so(make_engine: MakeEngine) -> None:
    engine: Engine = make_engine(POLICY)
    engine.close()

    with pytest.raises(EngineError, match="no model is loaded"):
        engine.generate(SEED, PROMPTS, quiet)


@pytest.mark.parametrize("ids", [(), (-1,), (264,)])
def test_prompts_that_no_model_can_run_are_errors(make_engine: MakeEngine, ids: tuple[int, ...]) -> None:
    engine = make_engine(POLICY)

    with pytest.raises(EngineError):
        engine.generate(SEED, [ids], quiet)
    with pytest.raises(EngineError):
        engine.replay(SEED, [Rollout(0, 0, (0, 4), ids, (), (), 1, 0.0)], quiet)


def test_a_seed_that_is_not_32_bytes_is_an_error(make_engine: MakeEngine) -> None:
    with pytest.raises(EngineError):
        make_engine(POLICY).generate(b"short", PROMPTS, quiet)


@pytest.fixture
def trained_folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """The first model with a few weights of two tensors changed."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "trained"))
    tensors = load_file(folder / "model.safetensors")
    for name in ("model.norm.weight", "model.embed_tokens.weight"):
        tensors[name].view(torch.int16).view(-1)[::7] ^= 1
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_patched_engine_is_one_that_has_loaded_the_weights(
    make_engine: MakeEngine, tiny_folder: Path, trained_folder: Path
) -> None:
    engine = make_engine(POLICY)
    changes = changes_between(tiny_folder, trained_folder)
    assert changes is not None and {change.name for change in changes} == {
        "model.norm.weight", "model.embed_tokens.weight",
    }  # fmt: skip

    engine.patch(trained_folder, changes)

    patched, digest = engine.generate(SEED, PROMPTS, quiet), engine.weights_digest()
    engine.load(tiny_folder)
    assert engine.weights_digest() != digest
    engine.load(trained_folder)
    assert engine.weights_digest() == digest
    assert engine.generate(SEED, PROMPTS, quiet) == patched


def test_nothing_is_patched_when_nothing_is_loaded(make_engine: MakeEngine, tiny_folder: Path) -> None:
    engine = make_engine(POLICY)
    engine.close()

    with pytest.raises(EngineError, match="no model is loaded"):
        engine.patch(tiny_folder, [])
