"""A process of shardcast 0.3.2, told what to do by lines of JSON as `peer.py` is.

    python shardcast_side.py origin FOLDER PORT
    python shardcast_side.py relay FOLDER PORT UPSTREAM
    python shardcast_side.py client FOLDER UPSTREAM

It asks for a file that no part of it makes, data1.bin, of every server: it is made by hand here. A client looks for the
version every `POLL_SECONDS`, as a relay does.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

POLL_SECONDS = 1


def main() -> None:
    said = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # it prints
    os.dup2(1, 2)
    kind, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data1.bin").write_bytes(bytes(1000))
    side = _begin(kind, folder)
    print(json.dumps({"url": f"http://127.0.0.1:{sys.argv[3]}" if kind != "client" else ""}), file=said, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(side, folder, json.loads(line))), file=said, flush=True)
    os._exit(0)  # its threads would go on


def _begin(kind: str, folder: Path) -> Any:
    from shardcast.client_node import ClientNode
    from shardcast.middle_node import MiddleNode
    from shardcast.origin_server import OriginServer

    if kind == "origin":
        return OriginServer(str(folder), int(sys.argv[3]))
    if kind == "relay":
        return MiddleNode([sys.argv[4]], str(folder), int(sys.argv[3]), check_interval=POLL_SECONDS)
    return ClientNode([sys.argv[3]], str(folder))


def _answer(side: Any, folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    if "add" in told:
        version = side.broadcast(told["add"])
        return {"version": version, "seconds": time.perf_counter() - started, "published": time.time()}
    if "fetch" in told:
        while told["fetch"] not in side.list_available_versions():
            time.sleep(POLL_SECONDS)
        seen = time.perf_counter()
        if side.download_version(told["fetch"], str(folder / "whole.bin")) is None:
            raise RuntimeError("shardcast did not get the file")
        return {"seconds": time.perf_counter() - seen, "done": time.time()}
    here, children = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"cpu_seconds": here.ru_utime + here.ru_stime + children.ru_utime + children.ru_stime}


if __name__ == "__main__":
    main()
