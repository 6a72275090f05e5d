"""Models that cannot be trained on: exit code 2, by name, before anything is done."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.chain import Chain
from tests.cli.command import command


def broken(base: Path, folder: Path, name: str) -> Path:
    shutil.copytree(base, folder)
    weights, config = folder / "model.safetensors", folder / "config.json"
    match name:
        case "no weights":
            weights.unlink()
        case "cut short":
            weights.write_bytes(weights.read_bytes()[:1_000_000])
        case "cut in its head":
            weights.write_bytes(weights.read_bytes()[:100])
        case "not JSON":
            config.write_text("{")
        case "code":
            config.write_text(json.dumps(json.loads(config.read_text()) | {"auto_map": {"AutoModel": "x.Y"}}))
        case "no tokenizer":
            (folder / "tokenizer.json").unlink()
        case "architecture":
            config.write_text(config.read_text().replace("LlamaForCausalLM", "BertModel"))
        case "shape":
            config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_size": 64}))
    return folder


MODELS = {
    "no weights": "has no weights as .safetensors",
    "cut short": "does not fit its dtype, shape and file: download or copy it again",
    "cut in its head": "safetensors header of",
    "not JSON": "config.json: not JSON",
    "code": "asks for code of its own (auto_map)",
    "no tokenizer": "has no tokenizer.json",
    "architecture": "give the model that the run was created with as --model",
    "shape": "give the model that the run was created with as --model",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_folder_that_cannot_be_trained_on_is_said(chain: Chain, tmp_path: Path, name: str) -> None:
    folder = broken(chain.base, tmp_path / "model", name)

    answer = command(
        "train", "--wallet", chain.wallets["trainer"], "--run", str(chain.run), "--host", "127.0.0.1", "--model",
        folder, *chain.at(), home=tmp_path / "home",
    )  # fmt: skip

    assert answer.code == 2
    assert MODELS[name] in answer.said and str(folder) in answer.said


@pytest.mark.parametrize("name", ["", "smollm3", "../no-such-folder-beside-this/../..", "a/b/c"])
def test_a_model_that_there_is_not_is_said(tmp_path: Path, chain: Chain, name: str) -> None:
    answer = command(
        "train",
        "--wallet",
        chain.wallets["trainer"],
        "--run",
        "1",
        "--host",
        "127.0.0.1",
        "--model",
        name,
        home=tmp_path,
    )

    assert answer.code == 2
    assert answer.said.endswith("is neither a built-in model (smollm2, tiny), nor a folder, nor a hub name")
