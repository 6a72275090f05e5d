"""What a process prints, of which neither memory nor disk takes more than was meant."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from node.engines.base import Policy
from node.engines.vllm.messages import Settings
from node.engines.vllm.process import EngineProcess
from node.errors import EngineError
from node.printed import LAST_BYTES, Printed
from tests.node.small_disk import Disk
from tests.node.small_disk import disk as disk

PRINT = "import sys; [print(f'{n:09}', flush=n % 50 == 0) for n in range(int(sys.argv[1]))]"  # ten bytes a line


def printed(log: Path, lines: int, **options: int) -> Printed:
    """What a process printed that has ended well."""
    found = Printed(log, **options)
    words = [sys.executable, "-c", PRINT, str(lines)]
    process = subprocess.Popen(words, stdout=found.descriptor, stderr=found.descriptor)
    found.closed()
    assert process.wait(20) == 0
    return found


def numbers(lines: list[str]) -> list[int]:
    return [int(line) for line in lines]


def test_what_is_printed_is_in_the_log_and_its_end_in_memory(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("of an earlier process\n")

    found = printed(log, 2000)

    assert numbers(found.last_lines(5, 10)) == [1995, 1996, 1997, 1998, 1999]
    assert numbers(log.read_text().splitlines()) == list(range(2000))
    assert len(found.last_lines(5000, 10)) <= LAST_BYTES / 10 + 1


def test_a_log_takes_no_more_than_it_may_and_has_the_end(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"

    found = printed(log, 20_000, most=50_000)

    assert numbers(found.last_lines(1, 10)) == [19_999]
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["engine.log", "engine.log.1"]
    assert sum(path.stat().st_size for path in files) <= 50_000
    kept = files[1].read_text() + files[0].read_text()
    assert "".join(f"{number:09}\n" for number in range(20_000)).endswith(kept)
    assert len(kept) > 25_000 - (1 << 13)  # half of it, but for the piece that did not fit


def test_a_process_goes_on_printing_while_the_disk_is_full(disk: Disk) -> None:
    log = disk.folder / "engine.log"
    disk.fill()

    found = printed(log, 3000)

    assert numbers(found.last_lines(2, 10)) == [2998, 2999]


@pytest.mark.parametrize("spoil", [Disk.fill, lambda disk: (disk.folder / "engine.log").mkdir()])
def test_an_engine_starts_whatever_the_disk_of_its_log_does(disk: Disk, spoil: Callable[[Disk], None]) -> None:
    """As far as it can be started: there is no such model."""
    spoil(disk)
    policy = Policy(1.0, 8, frozenset({0}), 1, 8)
    settings = Settings(str(disk.folder / "none"), policy, 16, 4, None, 1 << 26, 1, True)

    process = EngineProcess(settings, {}, disk.folder / "engine.log")
    try:
        with pytest.raises(EngineError, match="gave up") as failed:
            process.started()
        assert "space left" not in str(failed.value)
    finally:
        process.close()


def test_a_pipe_that_comes_to_stand_in_the_place_of_the_log_holds_up_nobody_who_prints(tmp_path: Path) -> None:
    found = Printed(tmp_path / "log")
    os.mkfifo(tmp_path / "log")
    for _ in range(4):
        os.write(found.descriptor, bytes(1 << 16))  # as much as a pipe holds: the next waits for who reads
    os.write(found.descriptor, b"the end\n")
    found.closed()

    assert found.last_lines(1, 5.0)[0].endswith("the end")
