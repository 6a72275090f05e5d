"""A process of libtorrent, told what to do by lines of JSON.

    python torrent_side.py FOLDER

`{"seed": PATH}` answers with the metadata, `{"fetch": METADATA, "peers": [PORT, ...]}` when all is here and on disk.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import libtorrent

LOOK_SECONDS = 0.01
SETTINGS = {
    "listen_interfaces": "127.0.0.1:0", "enable_dht": False, "enable_lsd": False, "enable_upnp": False,
    "enable_natpmp": False, "enable_outgoing_utp": False, "enable_incoming_utp": False,
    "allow_multiple_connections_per_ip": True, "hashing_threads": 2, "alert_mask": 0,
}  # fmt: skip


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    session = libtorrent.session(SETTINGS)
    while not session.listen_port():
        time.sleep(LOOK_SECONDS)
    print(json.dumps({"port": session.listen_port()}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        print(json.dumps(_seed(session, Path(told["seed"])) if "seed" in told else _fetch(session, folder, told)))
        sys.stdout.flush()


def _seed(session: Any, path: Path) -> dict[str, Any]:
    warnings.simplefilter("ignore", DeprecationWarning)  # 2.1 has another way, 2.0 only this one
    files = libtorrent.file_storage()
    libtorrent.add_files(files, str(path))
    torrent = libtorrent.create_torrent(files, 4 << 20)
    libtorrent.set_piece_hashes(torrent, str(path.parent))
    metadata = libtorrent.bencode(torrent.generate())
    _add(session, metadata, path.parent, [])
    return {"metadata": base64.b64encode(metadata).decode()}


def _fetch(session: Any, folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    handle = _add(session, base64.b64decode(told["fetch"]), folder, told["peers"])
    while not handle.status().is_seeding:
        time.sleep(LOOK_SECONDS)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "done": time.time()}


def _add(session: Any, metadata: bytes, folder: Path, peers: list[int]) -> Any:
    added = libtorrent.add_torrent_params()
    added.ti = libtorrent.torrent_info(libtorrent.bdecode(metadata))
    added.save_path = str(folder)
    added.flags &= ~libtorrent.torrent_flags.auto_managed
    added.flags &= ~libtorrent.torrent_flags.paused
    added.flags |= libtorrent.torrent_flags.disable_pex  # or a node asks the seed itself, past the slow line
    handle = session.add_torrent(added)
    for port in peers:
        handle.connect_peer(("127.0.0.1", port))
    return handle


if __name__ == "__main__":
    main()
