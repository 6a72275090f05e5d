"""What the machine permits: chunks by sendfile over plain sockets, received into place, hashed, written. No protocol.

    python ceiling.py serve FILE
    python ceiling.py fetch

The first sends the chunks that it is asked for by number. The second, told `{"port", "bytes", "file"}`, fetches them
all.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from blake3 import blake3

CHUNK_BYTES = 4 << 20
STREAMS = 4


def serve(path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    with path.open("rb") as file:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_send, args=(connection, file.fileno()), daemon=True).start()


def _send(connection: socket.socket, file: int) -> None:
    with connection:
        while len(number := connection.recv(4, socket.MSG_WAITALL)) == 4:
            start = int.from_bytes(number, "big") * CHUNK_BYTES
            end = min(start + CHUNK_BYTES, os.fstat(file).st_size)
            while start < end:
                start += os.sendfile(connection.fileno(), file, start, end - start)


def fetch(port: int, total: int, path: Path) -> float:
    """Seconds."""
    started = time.perf_counter()
    numbers = count()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.ftruncate(file, total)
    with ThreadPoolExecutor(STREAMS) as threads:
        for each in [threads.submit(_receive, port, numbers, total, file) for _ in range(STREAMS)]:
            each.result()
    os.close(file)
    return time.perf_counter() - started


def _receive(port: int, numbers: count[int], total: int, file: int) -> None:
    room = memoryview(bytearray(CHUNK_BYTES))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while (start := next(numbers) * CHUNK_BYTES) < total:
            chunk = room[: total - start]
            connection.sendall((start // CHUNK_BYTES).to_bytes(4, "big"))
            here = 0
            while here < len(chunk):
                here += connection.recv_into(chunk[here:])
            blake3(chunk).digest()
            os.pwrite(file, chunk, start)


def main() -> None:
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        print(json.dumps({"seconds": fetch(told["port"], told["bytes"], Path(told["file"]))}), flush=True)


if __name__ == "__main__":
    main()
