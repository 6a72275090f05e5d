"""The engine's process: `python -m node.tied LIFE node.engines.vllm.host ORDERS`, which `process` starts.

ORDERS is the descriptor of a socket pair.
"""

from __future__ import annotations

import sys
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from hashing.errors import HashingError
from node.engines.vllm.messages import (
    START,
    Abort,
    Asked,
    Done,
    Failed,
    Generate,
    Patch,
    Prefill,
    Progressed,
    Settings,
    Swap,
    WeightsDigest,
)
from node.errors import NodeError

if TYPE_CHECKING:
    from node.engines.vllm.serving import Batch

REPORT_SECONDS = 0.5  # between two reports, which also say that this process is alive
# What says by itself why nothing more can be done, so that nobody has to look into the log: files that cannot be read
# (OSError, SafetensorError); a configuration or a memory that vLLM refuses (ValueError, of which pydantic's is one);
# torch and its allocator, and what we say of orders that do not fit (RuntimeError); a vLLM that does not load here
# (ImportError); tensors and logits that are not what they should be (HashingError, NodeError). Anything else is an
# accident inside a library, or a bug: it ends this process as well, and the log has its place, of which the node shows
# the end.
REFUSALS = (OSError, SafetensorError, ValueError, RuntimeError, ImportError, HashingError, NodeError)


def main() -> None:
    with Connection(int(sys.argv[1])) as connection:
        try:
            _serve(connection)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the node has closed its engine


def _serve(connection: Connection) -> None:
    """Starts with the settings that come first, then does what it is asked until that fails."""
    settings: Settings = connection.recv()
    try:
        from node.engines.vllm.serving import Batch

        batch = Batch(settings)
        connection.send(Done(START, batch.ready))
        reported = 0.0
        while True:
            while connection.poll(0 if batch.busy else None):
                _begin(connection, batch, connection.recv())
            for number, job in batch.step():
                connection.send(Progressed(number, job.tokens, job.tokens))
                connection.send(Done(number, job.answer))
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                for number, done, total in batch.progress():
                    connection.send(Progressed(number, done, total))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except REFUSALS as error:
        connection.send(Failed(said(error)))


def _begin(connection: Connection, batch: Batch, asked: Asked) -> None:
    value: Any = None
    match asked.order:
        case Generate(seed, rows):
            batch.generate(asked.number, seed, rows)
            return
        case Prefill(seed, rows):
            batch.prefill(asked.number, seed, rows)
            return
        case Abort(number):
            batch.abort(number)
            return
        case Swap(folder):
            batch.swap(folder)
        case Patch(changes):
            batch.patch(changes)
        case WeightsDigest():
            value = batch.digest()
    connection.send(Done(asked.number, value))


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
