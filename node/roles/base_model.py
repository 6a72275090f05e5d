"""The run's base model: what the spec says of it, and that a folder is what the spec says."""

from pathlib import Path

from ledger.base import Digest
from node.errors import Malformed, SpecMismatch
from node.models.digests import ModelFacts, model_facts
from node.runspec import ModelSpec
from node.shards.layout import disk

COMPARED = ("architecture", "config", "tokenizer", "chat_template", "generation_config", "vocabulary")


def model_spec(folder: Path, manifest_root: Digest) -> ModelSpec:
    """What a RunSpec says of the model in `folder`.

    Raises:
        Malformed: not a usable model folder, its weights are not bfloat16, or it has no EOS id.
    """
    facts = model_facts(folder)
    if facts.dtype != "bfloat16":
        raise Malformed(f"{folder}: weights are {facts.dtype}, proofs need bfloat16")
    return ModelSpec(
        architecture=facts.architecture,
        manifest_root=manifest_root.hex(),
        config=facts.config,
        tokenizer=facts.tokenizer,
        chat_template=facts.chat_template,
        generation_config=facts.generation_config,
        dtype="bfloat16",
        vocabulary=facts.vocabulary,
        eos_ids=sorted(facts.eos_ids),
    )


def require_model(folder: Path, spec: ModelSpec) -> None:
    """Whether `folder`, whoever it is from, can be the run's model.

    Raises:
        SpecMismatch: a file beside the weights is not the run's; the message names it.
        Malformed: not a usable model folder.
        StoreError: the disk failed.
    """
    with disk(f"weights in {folder}"):
        facts: ModelFacts = model_facts(folder)
    for name in COMPARED:
        ours, theirs = getattr(facts, name), getattr(spec, name)
        if ours != theirs:
            raise SpecMismatch(f"{name} of the weights in {folder} is {ours}, the run's is {theirs}")
