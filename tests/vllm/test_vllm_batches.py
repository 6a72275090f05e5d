"""Whatever vLLM does with its running batch, every row is sampled by its own noise and proved by its own states.

What is claimed to have happened is read from the worker's batch in every step, not taken for granted.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise

import pytest

from node.engines.transformers import TransformersEngine
from node.engines.vllm.messages import Settings
from tests.vllm import running
from tests.vllm.agreement import ENDLESS, POLICY, quiet, require_replayed, require_sampled, rollouts
from tests.vllm.conftest import Run
from tests.vllm.running import IDLE

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
MakeSettings = Callable[..., Settings]

SEED, OTHER_SEED = b"\x21" * 32, b"\x22" * 32
SHORT = (0, 4, 70, 71, 5)
PROMPTS = [SHORT, (0, 4, 90, 5), (0, 4, *range(100, 130), 5)]
LONG = tuple(20 + (7 * i) % 240 for i in range(150))  # more than four blocks of 32 tokens


def rows_of(*prompts: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    return list(enumerate(prompts))


def claims(reference: TransformersEngine, seed: bytes, *prompts: tuple[int, ...]) -> list:
    """Rollouts of three samples of each prompt, and the rows in which a prefill asks for them."""
    samples = reference.generate(seed, prompts, quiet)
    rows = [(k, prompts[k // POLICY.group_size]) for k in range(len(samples))]
    return rollouts(rows, samples)


def prefill_rows(claimed: list) -> list:
    return [(r.group * POLICY.group_size + r.index, r.prompt_ids, r.output_ids) for r in claimed]


def test_jobs_of_several_seeds_that_come_and_go_share_a_batch(
    run: Run, settings: MakeSettings, reference: TransformersEngine
) -> None:
    first, second = rows_of(*PROMPTS, *PROMPTS), rows_of(*PROMPTS[::-1], SHORT)
    claimed = claims(reference, OTHER_SEED, PROMPTS[2])

    record = run(
        settings(),
        [
            (0, "generate", (1, SEED, first)),
            (3, "generate", (2, OTHER_SEED, second)),
            (5, "prefill", (3, OTHER_SEED, prefill_rows(claimed))),
        ],
    )

    job_of = {name: job for job, names in record.named.items() for name in names}
    together = [{job_of[place.name] for place in step} for step in record.steps]
    assert {1, 2} in together
    assert any(3 in jobs and len(jobs) > 1 for jobs in together)
    assert max(len(step) for step in record.steps) == 4  # rows of a batch: the others waited
    begun, ended = zip(*record.spans(1), *record.spans(2), strict=True)
    assert len(set(begun)) > 4
    assert len(set(ended)) > 6
    at = {}
    for step in record.steps:
        for b, place in enumerate(step):
            at.setdefault(place.name, set()).add(b)
    assert any(len(places) > 1 for places in at.values())  # vLLM moved requests to other rows
    require_sampled(reference, SEED, first, record.answers[1])
    require_sampled(reference, OTHER_SEED, second, record.answers[2])
    require_replayed(reference, OTHER_SEED, claimed, record.answers[3])


def test_prompts_and_outputs_that_are_computed_in_pieces(
    run: Run, settings: MakeSettings, reference: TransformersEngine
) -> None:
    rows = rows_of(LONG, SHORT, LONG[::-1], PROMPTS[2], LONG[1:])
    claimed = claims(reference, SEED, LONG[:40])

    record = run(
        settings(batch_tokens=16, prefix_caching=False),
        [(0, "generate", (1, SEED, rows)), (2, "prefill", (2, SEED, prefill_rows(claimed)))],
    )

    assert max(sum(place.end - place.start for place in step) for step in record.steps) == 16
    for name, (_, prompt) in zip(record.named[1], rows, strict=True):
        pieces = [place for place in record.places(name) if place.start < len(prompt)]
        assert len(pieces) >= len(prompt) // 16
        assert [place.dropped for place in pieces] == [True] * (len(pieces) - 1) + [False]
    assert any({place.dropped for place in step} == {True, False} for step in record.steps)
    assert all(len(record.places(name)) > 2 for name in record.named[2])
    require_sampled(reference, SEED, rows, record.answers[1])
    require_replayed(reference, SEED, claimed, record.answers[2])


def test_sequences_that_are_preempted_and_computed_again(
    run: Run, settings: MakeSettings, reference: TransformersEngine, pool: ProcessPoolExecutor
) -> None:
    cache = 12 * 2 * 4 * 128 * 32 * 2  # blocks (one is vLLM's own), keys and values, layers, hidden size, tokens, bytes
    tight = settings(policy=ENDLESS, batch_rows=10, cache_bytes=cache, batch_tokens=48)
    assert pool.submit(running.blocks, tight).result() == (11, 32)
    rows = rows_of(*(LONG[i : 24 + 2 * i] for i in range(6)))  # a block each, and a second one after 3 to 8 tokens
    claimed = claims(reference, SEED, LONG[40:140], LONG[99::-1])

    record = run(tight, [(0, "generate", (1, SEED, rows)), (6, "prefill", (2, SEED, prefill_rows(claimed)))])

    again = {job: sum(_computed_again(record, name) for name in names) for job, names in record.named.items()}
    assert min(again[1], again[2]) >= 1
    require_sampled(reference, SEED, rows, record.answers[1])
    require_replayed(reference, SEED, claimed, record.answers[2])


def _computed_again(record: running.Record, name: str) -> bool:
    starts = [place.start for place in record.places(name)]
    return any(later < earlier for earlier, later in pairwise(starts))


@pytest.mark.parametrize("caching", [True, False])
def test_shared_prompts_with_and_without_a_prefix_cache(
    run: Run, settings: MakeSettings, reference: TransformersEngine, caching: bool
) -> None:
    rows = rows_of(*[(*LONG[:140], last) for last in (30, 40, 50)])  # 128 are whole blocks of 32
    ours = settings(prefix_caching=caching, batch_rows=3)

    record = run(ours, [(0, "generate", (1, SEED, rows)), (IDLE, "generate", (2, OTHER_SEED, rows))])

    assert {record.places(name)[0].start for name in record.named[2]} == {128 if caching else 0}
    require_sampled(reference, SEED, rows, record.answers[1])
    require_sampled(reference, OTHER_SEED, rows, record.answers[2])


def test_outputs_whose_blocks_are_cached_are_still_looked_at(
    run: Run, settings: MakeSettings, reference: TransformersEngine
) -> None:
    rows = [(row, LONG[:110]) for row in range(3)]
    ours = settings(policy=ENDLESS, batch_rows=3)
    sampled = run(ours, [(0, "generate", (1, SEED, rows))])
    claimed = rollouts(rows, sampled.answers[1])
    longer = [(3, (*claimed[0].prompt_ids, *claimed[0].output_ids))]

    record = run(ours, [(0, "prefill", (2, SEED, prefill_rows(claimed))), (9, "generate", (3, SEED, longer))])

    assert {record.places(name)[0].start for name in record.named[2]} == {96}  # whole blocks of the prompt
    assert record.places(record.named[3][0])[0].start == 128  # it was in the cache
    require_replayed(reference, SEED, claimed, record.answers[2])


def test_a_prompt_that_ends_with_a_block_is_seen_from_its_last_token_on(
    run: Run, settings: MakeSettings, reference: TransformersEngine
) -> None:
    backwards = LONG[::-1]
    claimed = claims(reference, SEED, backwards[:96], backwards[:97])

    record = run(settings(batch_rows=6), [(0, "prefill", (1, SEED, prefill_rows(claimed)))])

    assert [record.places(name)[0].start for name in record.named[1]] == [0, 64, 64, 96, 96, 96]
    require_replayed(reference, SEED, claimed, record.answers[1])


def test_an_aborted_job_leaves_nothing_and_the_next_one_is_right(
    run: Run, settings: MakeSettings, reference: TransformersEngine
) -> None:
    rows = rows_of(*PROMPTS, *PROMPTS)
    claimed = claims(reference, SEED, LONG[:100])

    record = run(
        settings(),
        [
            (0, "generate", (1, SEED, rows)),
            (0, "generate", (2, OTHER_SEED, rows)),
            (2, "prefill", (3, SEED, prefill_rows(claimed))),
            (4, "abort", (1,)),
            (5, "abort", (3,)),
            (6, "abort", (77,)),
        ],
    )

    assert {place.name for step in record.steps[:4] for place in step} & set(record.named[1])
    assert not {place.name for step in record.steps[5:] for place in step} & set(record.named[1])
    assert record.answers.keys() == {2}
    assert record.left == {"jobs": 0, "requests": 0, "blocks": 0, "traces": 0}
    require_sampled(reference, OTHER_SEED, rows, record.answers[2])
    require_sampled(reference, SEED, rows, run(settings(), [(0, "generate", (4, SEED, rows))]).answers[4])
