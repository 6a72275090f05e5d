"""What the node and its libp2p process tell each other: it reads back, and what is nothing or too much is refused."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.errors import Malformed
from node.p2p.limits import MAX_REQUESTS
from node.p2p.listening import listening
from node.p2p.messages import (
    ANSWERED,
    BUSY,
    HEAD,
    MAX_HEAD_BYTES,
    ORDERS,
    REPORTS,
    Ask,
    Asked,
    Order,
    Ready,
    Reply,
    Start,
    decode,
    encode,
    sizes,
)
from node.p2p.protocols import CONTENT
from node.p2p.sidecar import Sidecar
from tests.p2p.parts import secret, until
from tests.p2p.sidecars import Ear

STRANGE = """
import socket, sys
from pathlib import Path

here = Path(__file__).parent
with socket.socket(fileno=int(sys.argv[-2])) as node, (here / "heard").open("wb", 0) as heard:
    node.sendall((here / "said").read_bytes())
    while data := node.recv(1 << 16):
        heard.write(data)
"""


def body_of(frame: bytes) -> tuple[bytes, bytes]:
    head, body = sizes(frame[: HEAD.size])
    rest = frame[HEAD.size :]
    assert len(rest) == head + body
    return rest[:head], rest[head:]


def test_what_the_node_and_its_process_tell_each_other_reads_back() -> None:
    ask = Ask(1, "a", "/x/1", 10, 500, b"\x00\xff")

    assert decode(ORDERS, *body_of(encode(ask))) == ask


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"", b""),
        (b"[]", b""),
        (b"null", b""),
        (b'{"kind": "Ask"}', b""),
        (b'{"kind": "Start", "allow_private": true}', b""),  # an order, not a report
        (b'{"kind": "Ready", "peer": "a"}', b"a body"),
        (b'{"kind": "Ready", "peer": 1}', b""),
        (b'{"kind": "Failed", "number": true, "reason": "a"}', b""),
        (b'{"kind": "Failed", "number": "1", "reason": "a"}', b""),
        (b'{"kind": "Ready", "peer": "a", "more": 1}', b""),
        (b"[" * 10_000, b""),
    ],
)
def test_a_frame_that_is_no_report_is_refused(head: bytes, body: bytes) -> None:
    with pytest.raises(Malformed):
        decode(REPORTS, head, body)


def test_a_frame_over_a_limit_is_neither_sent_nor_read() -> None:
    with pytest.raises(Malformed):
        sizes(HEAD.pack(MAX_HEAD_BYTES + 1, 0))
    with pytest.raises(Malformed):
        encode(Asked(1, "a", CONTENT, bytes(2 << 20)))
    assert decode(REPORTS, *body_of(encode(Ready("a")))) == Ready("a")


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what runs instead of the node's own process: it says what is in `said`, and notes in `heard`."""
    folder = tmp_path / "strange" / "node"
    folder.mkdir(parents=True)
    for name, text in (("__init__.py", ""), ("tied.py", STRANGE), ("heard", "")):
        (folder / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    return folder


def orders_in(data: bytes) -> Iterator[Order]:
    """Those that are whole."""
    while len(data) >= HEAD.size:
        end = HEAD.size + sum(sizes(data[: HEAD.size]))
        if len(data) < end:
            return
        yield decode(ORDERS, *body_of(data[:end]))
        data = data[end:]


async def test_a_process_in_strange_hands_has_the_node_answer_only_so_many_questions_at_once(
    tmp_path: Path, strange: Path
) -> None:
    """Twenty questions of one peer, then one each of a hundred others."""
    peers = ["one"] * 20 + [f"peer {n}" for n in range(100)]
    questions = [Asked(number, peer, CONTENT, b"never") for number, peer in enumerate(peers)]
    (strange / "said").write_bytes(b"".join(map(encode, questions)))
    refused = [*range(8, 20), *range(20 + MAX_REQUESTS - 8, 120)]

    ear = Ear()
    with listening("127.0.0.1", 0, True, secret(1)) as taken:
        ear.sidecar = Sidecar(taken, tmp_path / "log")
        async with ear.sidecar.running(ear):
            await until(lambda: len(list(orders_in((strange / "heard").read_bytes()))) > len(refused), 60)

    start, *replies = orders_in((strange / "heard").read_bytes())
    assert isinstance(start, Start)
    assert replies == [Reply(number, BUSY, b"") for number in refused]
    assert len(ear.asked_for) == MAX_REQUESTS == 64


class Lingering(Ear):
    async def asked(self, peer: str, protocol: str, body: bytes) -> bytes:
        """To the first question an answer that is late, and goes on after it was given up."""
        self.asked_for.append(body)
        if body == b"first":
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await self.together.wait()
        return body


async def test_a_question_is_answered_though_the_one_of_its_number_to_an_earlier_process_has_not_ended(
    tmp_path: Path, strange: Path
) -> None:
    (strange / "said").write_bytes(encode(Asked(0, "one", CONTENT, b"first")))
    ear = Lingering()
    with listening("127.0.0.1", 0, True, secret(1)) as taken:
        ear.sidecar = Sidecar(taken, tmp_path / "log", first_pause=0.05)
        async with ear.sidecar.running(ear):
            await until(lambda: ear.asked_for == [b"first"] and ear.sidecar.pid is not None, 60)
            (strange / "said").write_bytes(encode(Asked(0, "one", CONTENT, b"second")))
            assert ear.sidecar.pid is not None
            os.kill(ear.sidecar.pid, signal.SIGKILL)
            await until(lambda: len(list(orders_in((strange / "heard").read_bytes()))) > 1, 60)
            ear.together.set()
            await asyncio.sleep(0.1)

    start, *replies = orders_in((strange / "heard").read_bytes())
    assert isinstance(start, Start)
    assert replies == [Reply(0, ANSWERED, b"second")]  # and not what the first one came to at last
