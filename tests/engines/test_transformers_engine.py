"""The transformers engine against the library's own plain forward pass, and what loading may and may not do."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hashing.comparison import compare_all
from hashing.sampling import noise
from node.engines.base import Policy
from node.engines.transformers import TransformersEngine
from node.errors import EngineError, NotFound
from node.model_thread import Abandoned
from node.models.resolve import resolve
from node.rollouts.rollout import Rollout

SEED = b"\x15" * 32
PROMPTS = [(0, 4, 70, 71, 5), (0, 4, 90, 5), (0, 4, *range(100, 130), 5)]
POLICY = Policy(temperature=0.7, max_output_tokens=40, eos_ids=frozenset(range(0, 12)), group_size=4)
VECTORS = Path(__file__).parents[1] / "vectors" / "smollm2_vllm_cpu.npz"


def quiet(_done: int, _total: int) -> None:
    return None


def loaded(folder: Path, policy: Policy = POLICY) -> TransformersEngine:
    engine = TransformersEngine(policy, 1, batch_rows=6)
    engine.load(folder)
    return engine


@pytest.fixture(scope="module")
def plain_model(tiny_folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.bfloat16, attn_implementation="eager").eval()


def test_samples_are_those_of_a_full_forward_pass_per_token(tiny_folder: Path, plain_model: Any) -> None:
    engine = loaded(tiny_folder)
    samples = engine.generate(SEED, PROMPTS, quiet)

    same = total = 0
    for row, sample in enumerate(samples):
        ids = list(PROMPTS[row // 4])
        for t, (token, logprob) in enumerate(zip(sample.output_ids, sample.logprobs, strict=True)):
            with torch.no_grad():
                logits = plain_model(torch.tensor([ids]), use_cache=False).logits[0, -1].double().numpy() / 0.7
            scores = logits + noise(SEED, [row], [t], 264)[0]
            assert scores.max() - scores[token] < 0.03
            assert abs(logits[token] - np.log(np.exp(logits).sum()) - logprob) < 0.02
            same += int(scores.argmax() == token)
            total += 1
            ids.append(token)

    assert total > 150
    assert same / total > 0.97


def test_replayed_states_are_those_of_a_full_forward_pass(tiny_folder: Path, plain_model: Any) -> None:
    engine = loaded(tiny_folder)
    samples = engine.generate(SEED, PROMPTS, quiet)
    rollouts = [
        Rollout(k // 4, k % 4, PROMPTS[k // 4], s.output_ids, s.logprobs, s.proofs, s.finish, 0.0)
        for k, s in enumerate(samples)
    ]

    for rollout, replay in zip(rollouts, engine.replay(SEED, rollouts, quiet), strict=True):
        ids = torch.tensor([[*rollout.prompt_ids, *rollout.output_ids]])
        with torch.no_grad():
            states = plain_model.model(ids, use_cache=False).last_hidden_state[0].float().numpy()
        expected = states[len(rollout.prompt_ids) - 1 : -1]
        found = (replay.hidden_bits.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(found, expected, atol=0.06)


def test_states_captured_from_vllm_are_near_those_of_a_replay() -> None:
    """SmolLM2-135M in bfloat16: outputs, states and log-probabilities were recorded from vLLM 0.32 on a CPU."""
    try:
        folder = resolve("smollm2", print)
    except NotFound as error:
        pytest.skip(str(error))
    recorded = np.load(VECTORS)
    engine = loaded(folder, Policy(1.0, 128, frozenset({2}), 1))
    rollouts = [
        Rollout(i, 0, tuple(recorded[f"prompt_{i}"].tolist()), tuple(recorded[f"output_{i}"].tolist()), (), (), 1, 0.0)
        for i in range(2)
    ]

    from hashing.proof import build_proofs

    for i, replay in enumerate(engine.replay(SEED, rollouts, quiet)):
        distances = compare_all(build_proofs(recorded[f"hidden_bf16_{i}"]), replay.hidden_bits)
        assert max(d.exponent_mismatches for d in distances) <= 12
        assert max(d.mantissa_mean for d in distances) <= 3
        assert np.abs(replay.logprobs - recorded[f"logprob_{i}"]).mean() < 0.1


def test_a_generation_that_nobody_waits_for_ends_at_its_next_token_and_the_engine_goes_on(tiny_folder: Path) -> None:
    engine, heard = loaded(tiny_folder), []

    def give_up(done: int, _total: int) -> None:
        heard.append(done)
        raise Abandoned

    with pytest.raises(Abandoned):
        engine.generate(SEED, PROMPTS, give_up)

    assert heard == [6]  # the first token of the six rows of a batch
    assert engine.generate(SEED, PROMPTS, quiet) == loaded(tiny_folder).generate(SEED, PROMPTS, quiet)


def test_swapped_weights_are_bit_for_bit_those_of_a_fresh_load(tiny_folder: Path, other_folder: Path) -> None:
    swapped, fresh = loaded(tiny_folder), loaded(other_folder)
    before = swapped.weights_digest()

    swapped.load(other_folder)

    assert before != swapped.weights_digest() == fresh.weights_digest()
    assert swapped.generate(SEED, PROMPTS, quiet) == fresh.generate(SEED, PROMPTS, quiet)


def test_neither_loading_nor_generating_draws_from_torchs_generator(tiny_folder: Path) -> None:
    before = torch.random.get_rng_state()

    loaded(tiny_folder).generate(SEED, PROMPTS[:1], quiet)

    assert torch.equal(before, torch.random.get_rng_state())


def test_a_loaded_model_does_not_see_its_file_change(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    engine = loaded(folder)
    before = engine.weights_digest()

    (folder / "model.safetensors").write_bytes(b"")

    assert engine.weights_digest() == before


@pytest.mark.parametrize("how", ["missing", "extra", "shape", "dtype", "tied"])
def test_weights_that_do_not_fit_are_refused_and_the_old_ones_stay(
    tiny_folder: Path, other_folder: Path, tmp_path: Path, how: str
) -> None:
    tensors = load_file(other_folder / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    if how == "missing":
        del tensors[name]
    elif how == "extra":
        tensors["model.extra.weight"] = torch.zeros(2, dtype=torch.bfloat16)
    elif how == "tied":
        tensors["lm_head.weight"] = torch.zeros(264, 128, dtype=torch.bfloat16)
    else:
        tensors[name] = tensors[name][:64] if how == "shape" else tensors[name].float()
    broken = Path(shutil.copytree(tiny_folder, tmp_path / "broken"))
    save_file({k: v.contiguous() for k, v in tensors.items()}, broken / "model.safetensors")
    engine = loaded(tiny_folder)
    before = engine.weights_digest()

    with pytest.raises(EngineError):
        engine.load(broken)

    assert engine.weights_digest() == before


class Vanishing(type(Path())):  # type: ignore[misc]
    """A folder whose files are there when they are looked at first, and in which one is not when they are read."""

    listings = 0
    later: Callable[[list[Path]], list[Path]]

    def glob(self, pattern: str) -> Any:
        type(self).listings += 1
        found = sorted(super().glob(pattern))
        return found if self.listings == 1 else type(self).later(found)


@pytest.mark.parametrize(
    "later", [lambda found: [*found, found[0].with_name("gone.safetensors")], lambda found: found[1:]]
)
def test_a_failure_while_weights_are_read_unloads_instead_of_mixing(
    tiny_folder: Path, other_folder: Path, monkeypatch: pytest.MonkeyPatch, later: Callable[[list[Path]], list[Path]]
) -> None:
    monkeypatch.setattr(Vanishing, "listings", 0)
    monkeypatch.setattr(Vanishing, "later", staticmethod(later), raising=False)
    engine = loaded(tiny_folder)

    with pytest.raises(EngineError, match="failed midway"):
        engine.load(Vanishing(other_folder))

    with pytest.raises(EngineError, match="no model is loaded"):
        engine.generate(SEED, PROMPTS, quiet)


@pytest.mark.parametrize("how", ["unknown", "broadcastable"])
def test_a_file_that_was_replaced_after_it_was_checked_unloads_instead_of_mixing(
    tiny_folder: Path, other_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    tensors = load_file(other_folder / "model.safetensors")
    if how == "unknown":
        tensors["model.extra.weight"] = torch.zeros(2, dtype=torch.bfloat16)
    else:
        tensors["model.norm.weight"] = tensors["model.norm.weight"][:1].clone()
    save_file(tensors, tmp_path / "replaced.safetensors")
    monkeypatch.setattr(Vanishing, "listings", 0)
    later = staticmethod(lambda _found: [tmp_path / "replaced.safetensors"])
    monkeypatch.setattr(Vanishing, "later", later, raising=False)
    engine = loaded(tiny_folder)

    with pytest.raises(EngineError, match=r"failed midway.*is not what it was a moment ago"):
        engine.load(Vanishing(other_folder))

    with pytest.raises(EngineError, match="no model is loaded"):
        engine.generate(SEED, PROMPTS, quiet)


@pytest.mark.parametrize("first", ["model.safetensors", "model-1.safetensors"])
def test_weights_in_several_files_are_loaded_from_all_of_them_without_an_index(
    tiny_folder: Path, tmp_path: Path, first: str
) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    tensors = sorted(load_file(folder / "model.safetensors").items())
    (folder / "model.safetensors").unlink()
    save_file(dict(tensors[:9]), folder / first)
    save_file(dict(tensors[9:]), folder / "model-2.safetensors")
    whole, swapped = loaded(tiny_folder), loaded(tiny_folder)

    swapped.load(folder)

    assert loaded(folder).weights_digest() == swapped.weights_digest() == whole.weights_digest()


def test_a_device_that_is_not_there_is_an_error_that_says_so(tiny_folder: Path) -> None:
    absent = torch.cuda.device_count()

    with pytest.raises(EngineError, match=r"could not be built: .*(CUDA|device)"):
        TransformersEngine(POLICY, 1, gpu=absent).load(tiny_folder)


def test_another_configuration_is_built_anew(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 500.0}))
    engine = loaded(tiny_folder)
    samples = engine.generate(SEED, PROMPTS, quiet)

    engine.load(folder)

    assert engine.generate(SEED, PROMPTS, quiet) != samples


@pytest.mark.parametrize(
    "change",
    [
        {"auto_map": {"AutoModelForCausalLM": "evil.Model"}},
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
        {"architectures": ["LlamaForCausalLM", "LlamaModel"]},
        {"architectures": [["LlamaForCausalLM"]]},
        {"hidden_size": "many"},
        {"sliding_window": 4},
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4},
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral"},  # whose window is 4,096 then
        {
            "architectures": ["MistralForCausalLM"],
            "model_type": "mistral",
            "sliding_window": 4,
            "use_sliding_window": False,  # of which Mistral knows nothing
        },
        {"sliding_window": 4, "use_sliding_window": True},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"layer_types": "sliding_attention"},
        {"quantization_config": {"quant_method": "fp8"}},
        {"logit_scale": 3.0},
        {"model_type": "gemma"},
        {"model_type": "granite", "logits_scaling": 4.0},
        {"qk_norm": True},
        {"is_causal": False},
        {"hidden_act": "gelu"},
        {"transformers_weights": "/etc/passwd"},
        {"max_position_embeddings": -1},
        {"max_position_embeddings": 10**8},
        {"hidden_size": 10**9},
        {"vocab_size": 4 * 10**7},
        {"intermediate_size": 10**9},
        {"num_hidden_layers": 10**6},
        {"num_attention_heads": 0},
        {"num_key_value_heads": 0},
    ],
)
def test_configurations_that_cannot_be_run_are_errors(
    tiny_folder: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))

    began = time.monotonic()
    with pytest.raises(EngineError):
        loaded(folder)
    assert time.monotonic() - began < 20  # and no model of that size was begun


def test_a_configuration_may_want_tuples(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "return_dict": False}))

    assert loaded(folder).generate(SEED, PROMPTS, quiet) == loaded(tiny_folder).generate(SEED, PROMPTS, quiet)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[]", "no JSON object"), ("{", "no usable config.json"), (" " * (1 << 20) + "{}", "over 1048576 bytes")],
)
def test_a_configuration_that_is_none_is_said_to_be(tiny_folder: Path, tmp_path: Path, text: str, said: str) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    (folder / "config.json").write_text(text)

    with pytest.raises(EngineError, match=said):
        loaded(folder)


def test_a_mistral_without_a_window_is_run(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    own = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None}
    (folder / "config.json").write_text(json.dumps(config | own))

    assert loaded(folder).generate(SEED, PROMPTS, quiet) == loaded(tiny_folder).generate(SEED, PROMPTS, quiet)


def test_weights_that_are_not_finite_are_an_error_and_no_samples(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors")

    with pytest.raises(EngineError, match="not finite"):
        loaded(folder).generate(SEED, PROMPTS, quiet)


def test_more_tokens_than_the_model_has_positions_are_an_error(tiny_folder: Path) -> None:
    with pytest.raises(EngineError, match="2048 positions"):
        loaded(tiny_folder).generate(SEED, [(0,) * 2040], quiet)
