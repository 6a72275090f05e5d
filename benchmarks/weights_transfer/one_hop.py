"""One hop, as fast as it goes: this project, shardcast and the machine's ceiling by turns, on the same file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .nodes import Told, free_port, lab

Say = Callable[[str], None]


@dataclass(slots=True)
class Hops:
    """Of each side one entry a round: seconds from the first request to the verified file, and from publishing to that;
    processor seconds of either end; memory over idle."""

    size: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    published: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    processor: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    rss_increase_mib: list[float] = field(default_factory=list)

    def rate(self, side: str) -> float:
        """Megabytes a second, by the median."""
        return self.size / 1e6 / median(self.seconds[side])

    def as_json(self) -> dict[str, float]:
        found = {"one_hop_mb_s": self.rate("ours"), "one_hop_ceiling_mb_s": self.rate("ceiling")}
        found["one_hop_ratio_ceiling"] = found["one_hop_mb_s"] / found["one_hop_ceiling_mb_s"]
        for name in ("server", "downloader"):
            found[f"{name}_cpu_seconds_per_gib"] = median(self.processor[name]) / self.size * 2**30
        if self.seconds["shardcast"]:
            found["shardcast_mb_s"] = self.rate("shardcast")
            found["one_hop_ratio_shardcast"] = found["one_hop_mb_s"] / found["shardcast_mb_s"]
            found["published_ratio_shardcast"] = median(self.published["shardcast"]) / median(self.published["ours"])
            for name in ("server", "downloader"):
                found[f"shardcast_{name}_cpu_seconds_per_gib"] = (
                    median(self.processor[f"shardcast {name}"]) / self.size * 2**30
                )
        return {name: round(value, 2) for name, value in found.items()}


def race(source: Path, rounds: int, shardcast: bool) -> Iterator[tuple[str, Hops]]:
    """Stops after each run, with the side that ran. Who begins changes from round to round."""
    hops = Hops((source / "model.bin").stat().st_size)
    sides = {"ours": ours, "ceiling": ceiling} | ({"shardcast": theirs} if shardcast else {})
    for number in range(rounds):
        order = list(sides)[number % len(sides) :] + list(sides)[: number % len(sides)]
        for side in order:
            sides[side](source, hops)
            yield side, hops


def ours(source: Path, hops: Hops) -> None:
    with lab() as here:
        origin, leaf = here.peer("origin"), here.peer("leaf")
        added = origin.ask({"add": str(source)})
        for each in (origin, leaf):
            each.ask({"idle": 1})
        seconds = leaf.ask({"fetch": added["root"], "sources": [origin.url]})["seconds"]
        _note(hops, "ours", added["seconds"], seconds, origin, leaf)


def theirs(source: Path, hops: Hops) -> None:
    with lab() as here:
        origin = here.begin("shardcast_side.py", "origin", here.folder / "origin", free_port())
        leaf = here.begin("shardcast_side.py", "client", here.folder / "leaf", origin.url)
        added = origin.ask({"add": str(source / "model.bin")})
        seconds = leaf.ask({"fetch": added["version"]})["seconds"]
        _note(hops, "shardcast", added["seconds"], seconds, origin, leaf)


def ceiling(source: Path, hops: Hops) -> None:
    with lab() as here:
        origin, leaf = here.begin("ceiling.py", "serve", source / "model.bin"), here.begin("ceiling.py", "fetch")
        told = {"port": origin.port, "bytes": hops.size, "file": str(here.folder / "copy")}
        hops.seconds["ceiling"].append(leaf.ask(told)["seconds"])


def _note(hops: Hops, side: str, publishing: float, seconds: float, origin: Told, leaf: Told) -> None:
    hops.seconds[side].append(seconds)
    hops.published[side].append(publishing + seconds)
    for name, end in (("server", origin), ("downloader", leaf)):
        figures = end.ask({"figures": 1})
        hops.processor[name if side == "ours" else f"{side} {name}"].append(figures["cpu_seconds"])
        if side == "ours":
            hops.rss_increase_mib.append(figures["rss_increase_mib"])
