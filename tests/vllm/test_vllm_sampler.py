"""Which row of a step belongs to which token of which request, on states of a runner that are made by hand.

Row b of the logits has its peak at a token that the test chooses, and token n of the step the hidden state n + 1, so
that what is noted says where it came from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hashing.proof import build_proofs
from hashing.sampling import noise

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

SEED, OTHER_SEED = b"\x51" * 32, b"\x52" * 32
HIDDEN, VOCABULARY, ROOM = 128, 64, 8  # room: rows that the runner's buffers have
PEAK = 1000.0


@dataclass
class Hand:
    """A runner whose batch a test sets before each step, and the sampler that stands in it."""

    notes: bool = True
    temperature: float = 1.0
    requests: dict[str, Any] = field(default_factory=dict)
    sampler: Any = None

    def __post_init__(self) -> None:
        from node.engines.vllm.sampler import SeededSampler

        self.runner = SimpleNamespace(requests=self.requests, model=SimpleNamespace(compute_logits=self.logits))
        self.sampler = SeededSampler(self.runner, self.temperature, self.notes)
        self.forward = self.sampler.watch(lambda hidden: hidden)

    @staticmethod
    def logits(states: torch.Tensor) -> torch.Tensor:
        """The peak is at token 40 + n for the state n."""
        return PEAK * torch.nn.functional.one_hot(40 + states[:, 0].long(), VOCABULARY).float()

    def add(self, name: str, row: int, prompt: int, seed: bytes = SEED, output: Sequence[int] | None = None) -> None:
        """A request as vLLM's workers know it, under another name than ours; `prompt` tokens of prompt."""
        asked = {"name": name, "seed": seed, "row": row} | ({} if output is None else {"output": list(output)})
        self.requests[f"{name}-9f"] = SimpleNamespace(
            num_prompt_tokens=prompt, sampling_params=SimpleNamespace(extra_args=asked)
        )

    def step(self, rows: Sequence[tuple[str, int, int, bool]], tokens: Sequence[int] | None, padded: int = 0) -> Any:
        """`rows`: (request, tokens of its sequence, how many of them are computed now, whether it is dropped).

        `tokens`: where each row's logits have their peak; None for logits that are all 0. `padded`: tokens that are
        computed for nothing, as CUDA graphs do.
        """
        count, free = len(rows), ROOM - len(rows)
        edges = np.cumsum([0, *(computed for _, _, computed, _ in rows), *[0] * free]).astype(np.int32)
        self.runner.input_batch = SimpleNamespace(num_reqs=count, req_ids=[f"{name}-9f" for name, *_ in rows])
        self.runner.optimistic_seq_lens_cpu = torch.tensor([*(length for _, length, _, _ in rows), *[0] * free])
        self.runner.discard_request_mask = SimpleNamespace(np=np.array([*(r[3] for r in rows), *[True] * free]))
        self.runner.query_start_loc = SimpleNamespace(np=edges, gpu=torch.from_numpy(edges))
        computed = int(edges[-1]) + padded
        self.forward(torch.arange(1.0, computed + 1).bfloat16()[:, None].expand(computed, HIDDEN))
        logits = torch.zeros(count, VOCABULARY)
        if tokens is not None:
            logits[range(count), list(tokens)] = PEAK
        return self.sampler.forward(logits, None).sampled_token_ids[:, 0].tolist()

    def take(self, **emitted: int) -> list[Any]:
        return self.sampler.take(list(emitted.items()))


def states(*values: float) -> np.ndarray:
    rows = torch.tensor(values).bfloat16()[:, None].expand(len(values), HIDDEN).contiguous()
    return rows.view(torch.int16).numpy().view(np.uint16)


def test_each_row_is_that_of_the_request_at_its_place_among_more_rows_and_tokens_than_there_are() -> None:
    hand = Hand()
    hand.add("a", row=0, prompt=3)
    hand.add("b", row=1, prompt=2)

    emitted = hand.step([("a", 3, 3, False), ("b", 2, 2, False)], [10, 11], padded=11)

    first, second = hand.take(a=1, b=1)
    assert emitted == [10, 11]
    assert (first.ids, second.ids, first.logprobs) == ((10,), (11,), (0.0,))
    assert first.proofs == build_proofs(states(3))  # tokens 1, 2, 3 and 4, 5 of the step
    assert second.proofs == build_proofs(states(5))


def test_the_noise_is_that_of_the_requests_seed_row_and_position() -> None:
    hand = Hand()
    hand.add("a", row=7, prompt=3)
    hand.add("b", row=7, prompt=2, seed=OTHER_SEED)

    emitted = hand.step([("b", 4, 1, True), ("a", 8, 1, True)], None)

    assert emitted == [
        int(noise(OTHER_SEED, [7], [2], VOCABULARY).argmax()),
        int(noise(SEED, [7], [5], VOCABULARY).argmax()),
    ]


def test_requests_that_change_places_keep_what_is_theirs() -> None:
    hand = Hand()
    for row, name in enumerate("abc"):
        hand.add(name, row, prompt=1)

    hand.step([("a", 1, 1, False), ("b", 1, 1, False), ("c", 1, 1, False)], [10, 20, 30])
    hand.step([("c", 2, 1, False), ("a", 2, 1, False)], [31, 11])
    hand.step([("b", 2, 1, False), ("a", 3, 1, False), ("c", 3, 1, False)], [21, 12, 32])

    a, b, c = hand.take(a=3, b=2, c=3)
    assert (a.ids, b.ids, c.ids) == ((10, 11, 12), (20, 21), (30, 31, 32))
    assert a.proofs == build_proofs(states(1, 2, 2))
    assert b.proofs == build_proofs(states(2, 1))
    assert c.proofs == build_proofs(states(3, 1, 3))


def test_rows_of_sequences_that_are_not_complete_are_dropped() -> None:
    hand = Hand()
    hand.add("a", 0, prompt=6)
    hand.add("b", 1, prompt=1)

    hand.step([("a", 4, 4, True), ("b", 1, 1, False)], [10, 20])
    hand.step([("a", 6, 2, False), ("b", 2, 1, False)], [11, 21])

    a, b = hand.take(a=1, b=2)
    assert (a.ids, b.ids) == ((11,), (20, 21))
    assert (a.proofs, b.proofs) == (build_proofs(states(2)), build_proofs(states(5, 3)))


def test_positions_that_are_sampled_again_replace_what_was_there() -> None:
    hand = Hand()
    hand.add("a", 0, prompt=2)

    for length, token in ((2, 10), (3, 11), (4, 12)):
        hand.step([("a", length, 1, False)], [token])
    hand.step([("a", 2, 2, True)], [40])  # computed again, in pieces
    hand.step([("a", 3, 1, False)], [21])
    hand.step([("a", 4, 1, False)], [22])

    [a] = hand.take(a=3)
    assert a.ids == (10, 21, 22)
    assert a.proofs == build_proofs(states(1, 1, 1))


def test_a_token_that_was_under_way_when_the_end_was_seen_is_left_out() -> None:
    hand = Hand()
    hand.add("a", 0, prompt=2)

    hand.step([("a", 2, 2, False)], [10])
    hand.step([("a", 3, 1, False)], [1])
    hand.step([("a", 4, 1, False)], [33])

    [a] = hand.take(a=2)
    assert (a.ids, a.logprobs, a.proofs) == ((10, 1), (0.0, 0.0), build_proofs(states(2, 1)))


def test_a_position_whose_predecessor_is_missing_is_an_error() -> None:
    hand = Hand()
    hand.add("a", 0, prompt=2)

    with pytest.raises(RuntimeError, match="output position 1 was sampled after 0 tokens"):
        hand.step([("a", 3, 1, False)], [10])


def test_ranks_that_do_not_note_sample_the_same_and_keep_nothing() -> None:
    hand = Hand(notes=False)
    hand.add("a", 3, prompt=2)

    emitted = hand.step([("a", 2, 2, False)], None)

    assert emitted == [int(noise(SEED, [3], [0], VOCABULARY).argmax())]
    assert hand.take(a=1) == []


def test_what_is_forgotten_is_not_under_way_and_lengths_are_those_of_the_rest() -> None:
    hand = Hand()
    hand.add("a", 0, prompt=2)
    hand.add("b", 1, prompt=2)
    hand.step([("a", 2, 2, False), ("b", 2, 2, False)], [10, 20])

    hand.sampler.forget(["a", "never"])

    assert hand.sampler.lengths(["a", "b"]) == [0, 1]


def test_an_output_that_is_looked_at_in_pieces_and_again_is_seen_once() -> None:
    hand = Hand()
    hand.add("a", 2, prompt=5, output=(41, 50, 43))  # three tokens of prompt, and all of the output but its last
    hand.add("b", 3, prompt=1)

    hand.step([("b", 1, 1, False), ("a", 2, 2, True)], [10, 10])  # of the prompt alone
    hand.step([("a", 4, 2, True)], [10])  # states 1 and 2: of the prompt's last token, and of the first of the output
    hand.step([("b", 2, 1, False), ("a", 3, 3, True)], [10, 10])  # preempted, and computed again
    hand.step([("a", 5, 2, False)], [10])  # state 1 is seen already; state 2

    [a] = hand.take(a=1)
    assert np.array_equal(a.hidden_bits, states(1, 2, 2))
    assert a.logprobs.tolist() == [0.0, -PEAK, -PEAK]  # peaks at 41, 42 and 42
    choice = PEAK + noise(SEED, [2] * 3, range(3), VOCABULARY)[range(3), [41, 42, 42]]
    own = [choice[0], *noise(SEED, [2] * 2, [1, 2], VOCABULARY)[range(2), [50, 43]]]
    np.testing.assert_allclose(a.deficits, choice - own, rtol=1e-6)


def test_an_output_of_which_a_part_was_not_computed_is_an_error() -> None:
    hand = Hand()
    hand.add("a", 2, prompt=5, output=(41, 50, 43))

    hand.step([("a", 5, 1, False)], [10])

    with pytest.raises(RuntimeError, match="0 of 3 tokens were looked at"):
        hand.take(a=1)
