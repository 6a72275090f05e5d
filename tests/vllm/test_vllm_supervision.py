"""Engine processes that are killed, hang, run out of memory or lose their node: said, and over, and begun anew."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from node.engines.changes import Change
from node.engines.transformers import TransformersEngine
from node.engines.vllm.engine import Hardware, VllmEngine, environment
from node.engines.vllm.messages import Settings
from node.engines.vllm.process import LEAVE_SECONDS, EngineProcess
from node.errors import EngineError
from node.model_thread import Abandoned
from tests.vllm.agreement import LOGPROB, POLICY, quiet, require_replayed, require_sampled, rollouts
from tests.vllm.processes import command, cpu_ticks, engines, killing, until
from tests.vllm.weight_files import change, changed, in_two_files

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

SEED = b"\x41" * 32
PROMPTS = [(4, 70 + i, 5) for i in range(6)]
MANY = PROMPTS * 20  # seconds of work
SOME = PROMPTS * 5  # more than a second: progress is told of twice in one
ROWS, SOME_ROWS = (
    [(row, prompts[row // POLICY.group_size]) for row in range(len(prompts) * POLICY.group_size)]
    for prompts in (PROMPTS, SOME)
)
HANG_SECONDS = 20.0
SECRET = "INTELLECT_NODE_PASSWORD"  # the wallet's


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Iterator[VllmEngine]:
    """Nothing is loaded yet."""
    log = tmp_path_factory.mktemp("logs") / "engine.log"
    engine = VllmEngine(POLICY, Hardware(threads=1, cache_bytes=1 << 26), log, 8, HANG_SECONDS)
    yield engine
    engine.close()


def process_of(engine: VllmEngine) -> int:
    [process] = engine._processes
    return process._process.pid


def require_right(engine: VllmEngine, reference: TransformersEngine) -> None:
    require_sampled(reference, SEED, ROWS, engine.generate(SEED, PROMPTS, quiet))


def require_gone(engine: VllmEngine, process: int) -> None:
    """Nothing is loaded, and no process is left."""
    with pytest.raises(EngineError, match="no model is loaded"):
        engine.generate(SEED, PROMPTS, quiet)
    assert command(process) == ""


def test_a_process_that_is_killed_while_it_starts_is_tried_again_with_a_smaller_batch(
    engine: VllmEngine, tiny_folder: Path, reference: TransformersEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "intellect-node")

    with killing(1) as killed:
        engine.load(tiny_folder)

    assert len(killed) == 1
    said = [(record.message, record.fields["rows"]) for record in caplog.records]
    assert said == [("engine out of memory, trying a smaller batch", 8), ("engine started", 4)]
    require_right(engine, reference)


def test_a_process_that_is_killed_whenever_it_starts_is_an_error(
    tiny_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = VllmEngine(POLICY, Hardware(threads=1), tmp_path / "engine.log", 16)

    with (
        killing(3) as killed,
        pytest.raises(EngineError, match=r"memory does not suffice, even for 4 sequences at once\..*signal 9"),
    ):
        engine.load(tiny_folder)

    assert len(killed) == 3
    assert [record.fields["rows"] for record in caplog.records] == [16, 8, 4]


def test_a_cache_for_which_there_is_no_memory_is_an_error_with_figures(tiny_folder: Path, tmp_path: Path) -> None:
    engine = VllmEngine(POLICY, Hardware(threads=1, cache_bytes=1 << 50), tmp_path / "engine.log", 4)

    with pytest.raises(EngineError, match=r"memory does not suffice.*/[0-9.]+ GiB\).*\(1048576.0 GiB\)"):
        engine.load(tiny_folder)


class Enough(Exception):
    pass


def test_a_job_whose_progress_raises_is_dropped_and_the_next_one_is_right(
    engine: VllmEngine, tiny_folder: Path, reference: TransformersEngine
) -> None:
    engine.load(tiny_folder)
    heard: list[tuple[int, int]] = []

    def enough(done: int, total: int) -> None:
        heard.append((done, total))
        raise Enough

    with pytest.raises(Enough):
        engine.generate(SEED, MANY, enough)

    [(done, total)] = heard
    assert done < total / 2  # it was under way
    until(lambda: idle(process_of(engine)), 20)
    require_right(engine, reference)


def idle(process: int) -> bool:
    """Whether it waits for orders, which it does only when nothing is under way."""
    before = cpu_ticks(process)
    time.sleep(0.5)
    return cpu_ticks(process) == before


def test_threads_that_ask_at_once_share_the_batch(
    engine: VllmEngine, tiny_folder: Path, reference: TransformersEngine
) -> None:
    engine.load(tiny_folder)
    seeds = [bytes([i]) * 32 for i in range(3)]
    heard: list[tuple[bytes, int, int]] = []

    with ThreadPoolExecutor(3) as threads:
        samples = list(
            threads.map(lambda s: engine.generate(s, SOME, lambda *figures: heard.append((s, *figures))), seeds)
        )

    assert len({seed for seed, done, total in heard if done < total}) == 3
    assert heard.index(next(h for h in heard if h[1] == h[2] > 0)) >= 3  # each had begun before the first was done
    for seed, each in zip(seeds, samples, strict=True):
        require_sampled(reference, seed, SOME_ROWS, each)


def test_loading_again_keeps_the_process(engine: VllmEngine, tiny_folder: Path, other_folder: Path) -> None:
    engine.load(tiny_folder)
    process, running = process_of(engine), engines()

    engine.load(other_folder)
    engine.load(other_folder)
    engine.load(tiny_folder)

    assert (process_of(engine), engines()) == (process, running)


@pytest.mark.parametrize(
    ("name", "indices"),
    [("model.norm.weight", [128]), ("model.norm.weight", [-1]), ("model.norm.weight", [0, 1]), ("lm_head.weight", [0])],
)
def test_a_patch_that_does_not_fit_changes_nothing(
    engine: VllmEngine, tiny_folder: Path, name: str, indices: list[int]
) -> None:
    engine.load(tiny_folder)
    before, process = engine.weights_digest(), process_of(engine)
    fits = change(tiny_folder, "model.norm.weight")
    does_not = Change(name, np.array(indices, np.int64), np.array([0], np.uint16))

    with pytest.raises(EngineError):
        engine.patch(tiny_folder, [fits, does_not])

    assert (engine.weights_digest(), process_of(engine)) == (before, process)


def test_tensors_that_are_not_stored_or_not_asked_for_are_refused_by_a_fresh_process(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """vLLM itself would leave the first as it lay in memory, and the second out."""
    for name, kept in (("missing", lambda name: "1.self_attn.k_proj" not in name), ("more", lambda _name: True)):
        folder = Path(shutil.copytree(tiny_folder, tmp_path / name))
        tensors = load_file(folder / "model.safetensors")
        found = {name: tensor for name, tensor in tensors.items() if kept(name)}
        more = {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()} if name == "more" else {}
        save_file(found | more, folder / "model.safetensors", {"format": "pt"})
        fresh = VllmEngine(POLICY, Hardware(threads=1, cache_bytes=1 << 26), tmp_path / "engine.log", 8)

        with pytest.raises(EngineError, match="1 tensors are not those of the configuration"):
            fresh.load(folder)


def test_weights_that_do_not_fit_leave_the_old_ones(
    engine: VllmEngine, tiny_folder: Path, reference: TransformersEngine, tmp_path: Path
) -> None:
    engine.load(tiny_folder)
    process = process_of(engine)
    broken = Path(shutil.copytree(tiny_folder, tmp_path / "broken"))
    tensors = load_file(broken / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:64].contiguous()
    save_file(tensors, broken / "model.safetensors")

    with pytest.raises(EngineError, match="not those of the configuration"):
        engine.load(broken)

    assert (engine.weights_digest(), process_of(engine)) == (reference.weights_digest(), process)
    require_right(engine, reference)


def test_a_patch_is_that_of_a_fresh_load_and_one_that_breaks_the_model_is_said(
    engine: VllmEngine, tiny_folder: Path, tmp_path: Path
) -> None:
    engine.load(tiny_folder)
    process, update = process_of(engine), change(tiny_folder, "model.norm.weight")
    fresh = TransformersEngine(POLICY, 1)
    fresh.load(changed(tiny_folder, tmp_path / "changed", update))

    engine.patch(tiny_folder, [update])
    digest = engine.weights_digest()
    engine.patch(tiny_folder, [Change(update.name, np.array([0]), np.array([0x7FC0], np.uint16))])  # NaN

    assert digest == fresh.weights_digest()
    with pytest.raises(EngineError, match=r"gave up: RuntimeError: .*not finite"):
        engine.generate(SEED, PROMPTS, quiet)
    require_gone(engine, process)


def test_weights_are_never_swapped_under_a_running_job(
    engine: VllmEngine, tiny_folder: Path, other_folder: Path
) -> None:
    engine.load(tiny_folder)
    process = process_of(engine)

    with pytest.raises(EngineError, match="under way"):
        engine.generate(SEED, PROMPTS, lambda _done, _total: engine.load(other_folder))

    require_gone(engine, process)


class Listed(type(Path())):  # type: ignore[misc]
    """A folder whose files are looked at in another one: what is read later is not what was checked."""

    def glob(self, pattern: str) -> Any:
        return Path(self.parent / "intact").glob(pattern)


def test_a_file_that_is_cut_short_midway_is_an_error_and_no_mix(
    engine: VllmEngine, tiny_folder: Path, other_folder: Path, reference: TransformersEngine, tmp_path: Path
) -> None:
    intact, broken = in_two_files(other_folder, tmp_path / "intact"), tmp_path / "broken"
    shutil.copytree(intact, broken)
    os.truncate(broken / "model-2.safetensors", (broken / "model-2.safetensors").stat().st_size // 2)
    engine.load(tiny_folder)
    require_right(engine, reference)
    process = process_of(engine)

    with pytest.raises(EngineError, match="SafetensorError"):
        engine.load(Listed(broken))

    require_gone(engine, process)


def test_a_process_that_is_killed_is_an_error_with_the_end_of_its_log_and_the_next_samples_as_before(
    engine: VllmEngine, tiny_folder: Path
) -> None:
    engine.load(tiny_folder)
    samples = engine.generate(SEED, PROMPTS, quiet)
    process = process_of(engine)

    with pytest.raises(EngineError, match=r"killed by signal 9\. Its log is .*engine\.0\.log\n  \S+"):
        engine.generate(SEED, MANY, lambda _done, _total: os.kill(process, signal.SIGKILL))

    require_gone(engine, process)
    engine.load(tiny_folder)
    assert engine.generate(SEED, PROMPTS, quiet) == samples


def test_a_process_that_hangs_is_an_error_within_the_time_that_was_set(
    engine: VllmEngine, tiny_folder: Path, reference: TransformersEngine
) -> None:
    engine.load(tiny_folder)
    require_right(engine, reference)
    process = process_of(engine)
    begun = time.monotonic()

    with pytest.raises(EngineError, match="said nothing for 20 s"):
        engine.generate(SEED, MANY, lambda _done, _total: os.kill(process, signal.SIGSTOP))

    assert time.monotonic() - begun < HANG_SECONDS + LEAVE_SECONDS + 10
    require_gone(engine, process)
    engine.close()


def test_an_order_that_a_stopped_process_does_not_take_is_an_error_within_the_time_that_was_set(
    engine: VllmEngine, tiny_folder: Path
) -> None:
    engine.load(tiny_folder)
    process, begun = process_of(engine), time.monotonic()
    os.kill(process, signal.SIGSTOP)

    with pytest.raises(EngineError, match="took no order for 20 s"):
        engine.generate(SEED, MANY * 1000, quiet)  # more than a socket's buffers hold

    assert time.monotonic() - begun < 2 * HANG_SECONDS
    require_gone(engine, process)


def test_whoever_waits_for_nothing_any_more_is_not_kept_by_a_stopped_process(
    engine: VllmEngine, tiny_folder: Path
) -> None:
    engine.load(tiny_folder)
    os.kill(process_of(engine), signal.SIGSTOP)
    begun = time.monotonic()

    def left(_done: int, _total: int) -> None:
        raise Abandoned

    with pytest.raises(Abandoned):
        engine.generate(SEED, PROMPTS, left)

    assert time.monotonic() - begun < HANG_SECONDS / 2
    engine.close()


def test_rows_are_shared_out_among_processes_and_one_without_a_row_is_not_asked(
    tiny_folder: Path, reference: TransformersEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; else it takes most of the machine's memory
    two = Hardware(((0,), (1,)), threads=1)  # numbers that mean nothing on a CPU
    engine = VllmEngine(POLICY, two, tmp_path / "engine.log", 8, HANG_SECONDS)
    engine.load(tiny_folder)
    rollout = rollouts(ROWS[:1], reference.generate(SEED, PROMPTS[:1], quiet)[:1])[0]

    [replay] = engine.replay(SEED, [rollout], quiet)

    assert np.abs(replay.logprobs - np.array(rollout.logprobs)).max() < LOGPROB
    assert (engine.generate(SEED, [], quiet), engine.replay(SEED, [], quiet)) == ([], [])
    samples = engine.generate(SEED, PROMPTS, quiet)
    require_sampled(reference, SEED, ROWS, samples)
    looked_at = rollouts(ROWS, samples)
    require_replayed(reference, SEED, looked_at, engine.replay(SEED, looked_at, quiet))
    engine.close()


def test_the_wallets_password_is_not_handed_on(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, "open sesame")
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    settings = Settings(str(tiny_folder), POLICY, 256, 4, None, 1 << 25, 1, True)

    before = engines()
    process = EngineProcess(settings, environment((), 1), tmp_path / "engine.log")
    [number] = set(engines()) - set(before)
    until(lambda: b"SOMETHING_ELSE=kept" in environ(number), 10)  # the program has begun
    found = environ(number)
    process.close()
    process.close()

    assert b"INTELLECT_NODE" not in found
    assert b"sesame" not in found
    assert engines() == before


def environ(process: int) -> bytes:
    return Path(f"/proc/{process}/environ").read_bytes()
