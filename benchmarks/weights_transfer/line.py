"""A line of limited speed before a server: a relay of TCP that lets so many bytes a second through, towards the client.

    python line.py PORT MEGABYTES_PER_SECOND

All connections share the line, each piece in its turn. Answers any line of input with the bytes that it let through.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from contextlib import suppress

PIECE_BYTES = 64 << 10
LATE_SECONDS = 0.05  # that a busy machine may wake a thread too late without the line losing its speed
BUFFER_BYTES = 256 << 10  # of a socket: what has passed it was not sent if nobody reads it


class Line:
    """One line to the server at `port` of this machine."""

    def __init__(self, port: int, bytes_per_second: float) -> None:
        self.sent = 0
        self._port = port
        self._rate = bytes_per_second
        self._turn = threading.Lock()
        self._free = 0.0  # when the next piece may go, monotonic

    def listen(self) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1])

    def _accept(self, listener: socket.socket) -> None:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", self._port))
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, here: socket.socket, there: socket.socket, limited: bool) -> None:
        piece = memoryview(bytearray(PIECE_BYTES))
        with suppress(OSError):
            while count := here.recv_into(piece):
                if limited:
                    self._await_turn(count)
                there.sendall(piece[:count])
        for each in (here, there):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _await_turn(self, count: int) -> None:
        with self._turn:
            mine = max(time.monotonic() - LATE_SECONDS, self._free)
            self._free = mine + count / self._rate
            self.sent += count
        time.sleep(max(0.0, mine - time.monotonic()))


def main() -> None:
    line = Line(int(sys.argv[1]), float(sys.argv[2]) * 1e6)
    print(json.dumps({"url": f"http://127.0.0.1:{line.listen()}"}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"sent": line.sent, "cpu_seconds": time.process_time()}), flush=True)


if __name__ == "__main__":
    main()
