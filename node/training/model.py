"""The language model as the learner sees it: hidden states at given places, and the head that turns them to logits."""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from node import widening
from node.errors import ConfigError, EngineError
from node.training.packing import MicroBatch

# Attributes of a config that change logits between the head and the softmax, and the values that do not.
_LOGIT_CHANGES: dict[str, tuple[object, ...]] = {
    "final_logit_softcapping": (None,),
    "logits_scaling": (None, 1, 1.0),
    "logit_scale": (None, 1, 1.0),
}


class CausalModel:
    """bfloat16 weights of a folder, without dropout. Refuses an architecture whose logits it would get wrong.

    Raises: EngineError: the folder does not load. ConfigError: a model that cannot be trained here.
    """

    def __init__(self, folder: Path, device: str) -> None:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        try:
            loaded: Any
            loaded, report = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=torch.bfloat16,
                attn_implementation="sdpa",
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
            raise EngineError(f"the model in {folder} does not load for training: {error}") from error
        if made_up := sorted(report["missing_keys"]):  # which transformers fills with random values
            raise EngineError(
                f"the model in {folder} lacks {len(made_up)} tensors in the files that are read, {made_up[0]} for one"
            )
        _require_trainable(loaded.config, loaded.get_output_embeddings())
        self.module: nn.Module = loaded.to(device).eval()
        if device == "cpu" and widening.NEEDED:
            widening.widen(self.module)
        self.vocabulary: int = loaded.get_output_embeddings().weight.shape[0]
        self.max_length: int = loaded.config.max_position_embeddings
        self._body: Any = loaded.base_model
        self._head: Any = loaded.get_output_embeddings()
        self._device = device

    @property
    def head(self) -> Tensor:
        """(V, H)."""
        return cast(Tensor, self._head.weight)

    def hidden(self, batch: MicroBatch) -> Tensor:
        """(N, H): what enters the head to predict each of the batch's output tokens."""
        states_RLH = self._body(
            input_ids=batch.input_ids.to(self._device),
            position_ids=batch.positions.to(self._device),
            attention_mask=None if batch.mask is None else batch.mask.to(self._device),
            use_cache=False,
            return_dict=True,
        ).last_hidden_state
        return cast(Tensor, states_RLH[batch.rows, batch.columns])


def _require_trainable(config: Any, head: Any) -> None:
    for name, harmless in _LOGIT_CHANGES.items():
        if getattr(config, name, None) not in harmless:
            raise ConfigError(f"{config.model_type} with {name} = {getattr(config, name)} cannot be trained here")
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        raise ConfigError(f"{config.model_type} has layers without full attention: it cannot be trained here")
    if head is None or getattr(head, "bias", None) is not None:
        raise ConfigError(f"{config.model_type} has no plain output head: it cannot be trained here")
