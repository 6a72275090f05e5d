import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ledger.base import Digest, Version
from node.errors import StoreError
from node.training.batch import GroupId
from node.training.checkpoint import State, latest_state, save_state
from node.training.hyper import Hyper
from node.training.step import Learner

REPOSITORY = Path(__file__).parents[2]


def ignore(done, total):
    pass


def state(version: int) -> State:
    consumed = {GroupId(Digest(bytes([version] * 32)), version): Version(version)}
    return State(Version(version), consumed, {"w": torch.full((3, 2), float(version))})


def test_a_saved_state_comes_back(tmp_path):
    save_state(tmp_path, replace(state(7), lineage="run 3"))
    found = latest_state(tmp_path)

    assert (found.version, dict(found.consumed)) == (7, {GroupId(bytes([7] * 32), 7): 7})
    assert found.lineage == "run 3"
    assert torch.equal(found.tensors["w"], torch.full((3, 2), 7.0))


def test_nothing_saved_is_none(tmp_path):
    assert latest_state(tmp_path) is None
    assert latest_state(tmp_path / "absent") is None


def test_only_the_last_states_are_kept(tmp_path):
    for version in (3, 4, 5, 5):
        save_state(tmp_path, state(version), keep=2)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["state-00000003", "state-00000004"]
    assert latest_state(tmp_path).version == 5


@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "BLAKE3SUMS"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "empty"])
def test_a_state_that_the_disk_spoilt_is_passed_over(tmp_path, name, damage):
    save_state(tmp_path, state(1))
    path = save_state(tmp_path, state(2)) / name
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 0x55
        path.write_bytes({"cut": data[:-1], "flip": data, "empty": b""}[damage])

    assert latest_state(tmp_path).version == 1


def test_only_spoilt_states_are_an_error_and_not_a_fresh_start(tmp_path):
    (save_state(tmp_path, state(1)) / "state.json").write_text("{}")

    with pytest.raises(StoreError, match="none of the 1"):
        latest_state(tmp_path)


KILLED_SAVES = """
import json, os, signal, sys, time
from pathlib import Path
import torch
from node.training.checkpoint import State, latest_state, save_state

torch.set_num_threads(1)
FILE_EVENTS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.scandir", "shutil.rmtree"}

def state(version):
    return State(version, {}, {"w": torch.full((1 << 20,), float(version))})

def start(action):
    # A fork per action: this process itself never has a second thread that a fork would lose.
    child = os.fork()
    if child == 0:
        action()
        os._exit(0)
    return child

def killed(child):
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL

def prepare(root):
    save_state(root, state(1))
    save_state(root, state(2), keep=1)

def save(root, kill_at):
    count = 0
    def hook(event, arguments):
        nonlocal count
        if event in FILE_EVENTS:
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    save_state(root, state(3), keep=1)

def inspect(root):
    last = latest_state(root)
    whole = bool((last.tensors["w"] == last.version).all())
    save_state(root, state(4), keep=1)
    left = sorted(path.name for path in root.iterdir())
    (root / "found.json").write_text(json.dumps([last.version, whole, len(left)]))

def trial(root, kill_at, delay=None):
    assert not killed(start(lambda: prepare(root)))
    child = start(lambda: save(root, kill_at))
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    was_killed = killed(child)
    assert not killed(start(lambda: inspect(root)))
    return [was_killed, *json.loads((root / "found.json").read_text())]

root = Path(sys.argv[1])
by_event = [trial(root / "event1", 1)]
while by_event[-1][0]:
    number = len(by_event) + 1
    by_event.append(trial(root / f"event{number}", number))
by_time = [trial(root / f"time{k}", None, delay=k * 0.001) for k in range(12)]
print(json.dumps([by_event, by_time]))
"""


def test_a_kill_at_any_file_operation_of_a_save_leaves_a_usable_state(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED_SAVES, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    by_event, by_time = json.loads(done.stdout)

    assert len(by_event) > 10  # the kills really went through the whole of a save
    assert [killed for killed, *_ in by_event] == [True] * (len(by_event) - 1) + [False]
    assert {version for _, version, *_ in by_event} == {2, 3}
    assert all(version in (2, 3) for _, version, *_ in by_time)
    assert all(whole and left == 1 for _, _, whole, left in by_event + by_time)


def test_a_resumed_learner_goes_on_bit_for_bit(base, make_group, tmp_path):
    batches = [
        [make_group([1.0, 0.0, 0.3], commitment=c, version=c, outputs=[(c, 5, 9), (8, c), (c + 20, 2, 7)])]
        for c in range(4)
    ]
    straight = Learner(base, Hyper(1e-3), 0.8, threads=1)
    for batch in batches[:2]:
        straight.step(batch, ignore)
    straight.save_state(tmp_path / "states")
    resumed = Learner(base, Hyper(1e-3), 0.8, threads=1)
    assert resumed.resume(tmp_path / "states")

    assert (resumed.version, resumed.consumed) == (straight.version, straight.consumed)
    for batch in batches[2:]:
        assert resumed.step(batch, ignore) == straight.step(batch, ignore)
    for name, learner in (("a", straight), ("b", resumed)):
        learner.export(tmp_path / name)
        learner.save_state(tmp_path / f"{name}-states")

    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert one == other
    one, other = (load_file(tmp_path / f"{n}-states" / "state-00000001" / "state.safetensors") for n in ("a", "b"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_learner_without_a_saved_state_says_so(base, tmp_path):
    assert not Learner(base, Hyper(1e-3), 1.0, threads=1).resume(tmp_path)


def test_a_state_of_another_model_is_refused(base, tmp_path):
    save_state(tmp_path, state(1))

    with pytest.raises(StoreError, match="other weights"):
        Learner(base, Hyper(1e-3), 1.0, threads=1).resume(tmp_path)


def test_groups_too_old_to_be_selected_are_forgotten(base, make_group, tmp_path):
    save_state(tmp_path, State(Version(300), {GroupId(Digest(bytes(32)), 0): Version(3)}, {}))
    learner = Learner(base, Hyper(1e-3), 1.0, threads=1)
    tensors = load_file(learner.save_state(tmp_path / "fresh") / "state.safetensors")
    save_state(tmp_path, State(Version(300), {GroupId(Digest(bytes(32)), k): Version(k) for k in (3, 299)}, tensors))
    learner.resume(tmp_path)
    learner.step([make_group([1.0, 1.0], version=300)], ignore)

    assert {id_.group for id_ in learner.consumed} == {299, 0}
