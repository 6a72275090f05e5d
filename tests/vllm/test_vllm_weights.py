"""Weights that are swapped and patched in vLLM: bit for bit those of a fresh load, and what it computes with."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from node.engines.transformers import TransformersEngine
from node.engines.vllm.messages import Settings
from tests.vllm.agreement import POLICY, quiet, require_sampled, rollouts
from tests.vllm.conftest import Run
from tests.vllm.running import IDLE
from tests.vllm.weight_files import build_untied, change, changed, in_two_files

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
MakeSettings = Callable[..., Settings]

SEED = b"\x31" * 32
ROWS = [(row, (4, 70 + row, 71, *range(100, 100 + row), 5)) for row in range(8)]
LONG = [(row, (*range(20, 160), 200 + row)) for row in range(4)]  # more than four blocks of 32 tokens
LAYER = "model.layers.1"
TINY = [
    "model.embed_tokens.weight",
    "model.norm.weight",
    f"{LAYER}.input_layernorm.weight",
    *(f"{LAYER}.self_attn.{part}_proj.weight" for part in "qkvo"),
    *(f"{LAYER}.mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
]
OWN = ["model.embed_tokens.weight", "lm_head.weight", *(f"{LAYER}.self_attn.{part}_proj.bias" for part in "qkv")]


# Of new values, where 0.3 changes too little or, in the output layer, makes logits so large that their rounding shows.
SIZES = {"q_proj.weight": 1.0, "k_proj.weight": 1.0, "q_proj.bias": 3.0, "k_proj.bias": 3.0, "lm_head.weight": 0.1}
SHIFT = 0.1  # five times what rounding makes of a log-probability


def size_of(name: str) -> float:
    return next((size for end, size in SIZES.items() if name.endswith(end)), 0.3)


@pytest.fixture(scope="module")
def untied_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untied") / "model"
    build_untied(folder, 1)
    return folder


def fresh(folder: Path) -> TransformersEngine:
    engine = TransformersEngine(POLICY, 1)
    engine.load(folder)
    return engine


def shift(reference: TransformersEngine, samples: list) -> float:
    """How far log-probabilities are at most from those of other weights."""
    replays = reference.replay(SEED, rollouts(ROWS, samples), quiet)
    return max(float(np.abs(r.logprobs - s.logprobs).max()) for r, s in zip(replays, samples, strict=True))


def require_follows(run: Run, settings: Settings, name: str, tmp_path: Path) -> None:
    """A patch of one tensor: the digest is that of a fresh load, samples are its samples, and going back goes back."""
    folder = Path(settings.folder)
    update = change(folder, name, size_of(name))
    old, new = fresh(folder), fresh(changed(folder, tmp_path / "new", update))

    record = run(
        settings,
        [
            (0, "swap", (settings.folder,)),
            (0, "digest", ()),
            (0, "patch", ((update,),)),
            (0, "digest", ()),
            (0, "generate", (1, SEED, ROWS)),
            (IDLE, "swap", (settings.folder,)),
            (IDLE, "digest", ()),
            (IDLE, "generate", (2, SEED, ROWS)),
        ],
    )

    assert record.values[1] == record.values[6] == old.weights_digest()
    assert record.values[3] == new.weights_digest() != old.weights_digest()
    require_sampled(new, SEED, ROWS, record.answers[1])
    require_sampled(old, SEED, ROWS, record.answers[2])
    assert shift(old, record.answers[1]) > SHIFT


@pytest.mark.parametrize("name", TINY)
def test_a_patched_tensor_is_what_the_tiny_model_computes_with(
    run: Run, settings: MakeSettings, tmp_path: Path, name: str
) -> None:
    require_follows(run, settings(), name, tmp_path)


@pytest.mark.parametrize("name", OWN)
def test_a_patched_tensor_is_what_an_untied_model_computes_with(
    run: Run, settings: MakeSettings, untied_folder: Path, tmp_path: Path, name: str
) -> None:
    require_follows(run, settings(folder=str(untied_folder)), name, tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_swapped_weights_are_those_of_a_fresh_load(
    run: Run, settings: MakeSettings, tiny_folder: Path, other_folder: Path, untied_folder: Path, tmp_path: Path,
    tied: bool,
) -> None:  # fmt: skip
    first, second = (tiny_folder, other_folder) if tied else (untied_folder, tmp_path / "second")
    if not tied:
        build_untied(second, 2)

    record = run(
        settings(folder=str(first)),
        [(0, "digest", ()), (0, "swap", (str(second),)), (0, "digest", ()), (0, "generate", (1, SEED, ROWS)),
         (IDLE, "swap", (str(first),)), (IDLE, "digest", ())],
    )  # fmt: skip

    assert record.values[0] == record.values[5] == fresh(first).weights_digest()
    assert record.values[2] == fresh(second).weights_digest() != record.values[0]
    require_sampled(fresh(second), SEED, ROWS, record.answers[1])
    assert shift(fresh(first), record.answers[1]) > SHIFT


@pytest.mark.parametrize("how", ["swap", "patch"])
def test_what_was_cached_of_old_weights_is_not_used_with_new_ones(
    run: Run, settings: MakeSettings, tiny_folder: Path, other_folder: Path, tmp_path: Path, how: str
) -> None:
    update = change(tiny_folder, f"{LAYER}.self_attn.k_proj.weight")
    new = other_folder if how == "swap" else changed(tiny_folder, tmp_path / "new", update)
    load = (IDLE, "swap", (str(new),)) if how == "swap" else (IDLE, "patch", ((update,),))

    record = run(
        settings(),
        [
            (0, "generate", (1, SEED, LONG)),
            (IDLE, "generate", (2, SEED, LONG)),
            load,
            (IDLE, "generate", (3, SEED, LONG)),
            (IDLE, "swap", (str(tiny_folder),)),
        ],
    )

    starts = {job: [record.places(name)[0].start for name in names] for job, names in record.named.items()}
    assert starts[2] == [128] * 4
    assert starts[3][0] == 0
    require_sampled(fresh(tiny_folder), SEED, LONG, record.answers[2])
    require_sampled(fresh(new), SEED, LONG, record.answers[3])


def test_weights_in_several_files_are_loaded_from_all_of_them_whatever_an_index_names(
    run: Run, settings: MakeSettings, other_folder: Path, tmp_path: Path
) -> None:
    folder = in_two_files(other_folder, tmp_path / "model")
    with safe_open(folder / "model-1.safetensors", "pt") as first:
        index = {"metadata": {}, "weight_map": dict.fromkeys(first.keys(), "model-1.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    record = run(settings(folder=str(folder)), [(0, "digest", ())])

    assert record.values[0] == fresh(other_folder).weights_digest()


def test_what_lies_beside_the_configuration_is_not_heeded(
    run: Run, settings: MakeSettings, reference: TransformersEngine, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.Pooling"}]'
    )
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')

    record = run(settings(folder=str(folder)), [(0, "generate", (1, SEED, ROWS))])

    require_sampled(reference, SEED, ROWS, record.answers[1])


def test_a_file_that_vanished_after_it_was_checked_is_an_error(
    run: Run, settings: MakeSettings, other_folder: Path, tmp_path: Path
) -> None:
    folder = in_two_files(other_folder, tmp_path / "model")
    (folder / "model-2.safetensors").unlink()

    with pytest.raises(RuntimeError, match="19 tensors are gone"):  # of 38
        run(settings(batch_rows=5), [(0, "swap", (str(folder),))])
