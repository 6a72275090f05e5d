"""A rollout as a value: what an engine makes, what a file holds, what a second look at it says."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FINISH_EOS = 0  # the last token is an EOS id
FINISH_LENGTH = 1  # exactly max_output_tokens, and the last one is no EOS id


@dataclass(frozen=True, slots=True)
class Sample:
    """What an engine generated for one row of a slot.

    `logprobs` are the model's at the run's temperature, before noise, one per output token; `proofs` one TOPLOC proof
    of 258 bytes per started chunk of 32 output tokens.
    """

    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    proofs: tuple[bytes, ...]
    finish: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """One leaf of a rollout file. `group * group_size + index` is its row."""

    group: int
    index: int
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    proofs: tuple[bytes, ...]
    finish: int
    reward: float


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What one prefill over prompt and output says of a rollout of T output tokens (H: hidden size).

    hidden_bits: (T, H) uint16, bfloat16 patterns of what enters lm_head; row t predicted output token t.
    logprobs: (T,) float32, of the emitted tokens at the run's temperature, before noise.
    gaps: (T,) float32, best minus second score (logit / T + noise) over the vocabulary.
    deficits: (T,) float32, best score minus that of the emitted token; 0 where they are the same.
    """

    hidden_bits: npt.NDArray[np.uint16]
    logprobs: npt.NDArray[np.float32]
    gaps: npt.NDArray[np.float32]
    deficits: npt.NDArray[np.float32]
