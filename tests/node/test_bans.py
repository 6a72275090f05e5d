"""Bans that outlive the process."""

import os
from pathlib import Path

import pytest

from node.bans import MAX_BANS, Bans

NOW = 1_000_000.0


def test_a_ban_holds_for_a_day_when_the_process_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "banned"
    Bans(path, lambda: NOW).add("http://liar", "served a wrong chunk")

    assert Bans(path, lambda: NOW + 86_399).reasons == {"http://liar": "served a wrong chunk"}
    assert "http://liar" not in Bans(path, lambda: NOW + 86_400)


def test_a_ban_ends_after_a_day_in_the_process_that_made_it() -> None:
    now = [NOW]
    bans = Bans(None, lambda: now[0])
    bans.add("http://liar", "served a wrong chunk")

    now[0] = NOW + 86_399
    assert "http://liar" in bans
    now[0] = NOW + 86_400
    assert "http://liar" not in bans
    assert bans.reasons == {}


def test_nothing_is_written_when_nobody_was_banned(tmp_path: Path) -> None:
    assert Bans(tmp_path / "banned").reasons == {}
    assert not (tmp_path / "banned").exists()


def test_two_processes_do_not_undo_each_others_bans(tmp_path: Path) -> None:
    first, second = Bans(tmp_path / "banned"), Bans(tmp_path / "banned")
    first.add("http://a", "1")
    second.add("http://b", "2")
    assert Bans(tmp_path / "banned").reasons == {"http://a": "1", "http://b": "2"}


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"\xff\xfe", b"[]", b'{"source":"http://x","reason":"r","when":NaN}',
        b'{"source":"http://x","reason":"r","when":9e99}', b'{"source":"http://x","reason":"r"}',
        b'{"source":1,"reason":"r","when":1000000.0}', b'{"source":"http://x","reason":"r","when":1000000.0,"more":1}',
        b'{"source":"http://x","reason":"' + b"r" * 201 + b'","when":1000000.0}', b"[" * 100_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", [b"\n", b""], ids=["whole", "torn"])
def test_a_line_that_nobody_can_read_bans_nobody_and_hides_no_other(line: bytes, end: bytes, tmp_path: Path) -> None:
    path = tmp_path / "banned"
    Bans(path, lambda: NOW).add("http://before", "1")
    with path.open("ab") as file:
        file.write(line + end)
    Bans(path, lambda: NOW).add("http://after", "2")
    assert Bans(path, lambda: NOW).reasons == {"http://before": "1", "http://after": "2"}


def test_bans_are_bounded_on_disk_too_when_liars_keep_coming(tmp_path: Path) -> None:
    bans = Bans(tmp_path / "banned", lambda: NOW)
    for number in range(MAX_BANS + 10):
        bans.add(f"http://{number}", "x" * 1000)

    assert len(bans.reasons) == MAX_BANS
    again = Bans(tmp_path / "banned", lambda: NOW)
    assert "http://0" not in again
    assert len((tmp_path / "banned").read_bytes().splitlines()) == MAX_BANS
    assert again.reasons == bans.reasons


@pytest.mark.parametrize("what", ["a pipe", "an endless link", "a folder"])
def test_what_stands_in_the_place_of_the_bans_holds_nothing_up(tmp_path: Path, what: str) -> None:
    path = tmp_path / "banned"
    {"a pipe": os.mkfifo, "a folder": os.mkdir}.get(what, lambda path: path.symlink_to("/dev/zero"))(path)

    bans = Bans(path)
    bans.add("http://liar", "lied")

    assert "http://liar" in bans
    assert ("http://liar" in Bans(path)) is (what != "a folder")


def test_a_ban_holds_here_when_the_disk_refuses_it(tmp_path: Path) -> None:
    bans = Bans(tmp_path / "no folder" / "banned")
    bans.add("http://liar", "why")
    assert "http://liar" in bans
