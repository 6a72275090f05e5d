"""Which engine runs the model: the one that the user names, or one picked by what is installed and what is here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from node.engines.base import Engine, Policy
from node.engines.vllm import installed
from node.errors import ConfigError
from node.log import event, warn

AUTO, TRANSFORMERS, VLLM, SCRIPTED = "auto", "transformers", "vllm", "scripted"
ENGINES = (AUTO, TRANSFORMERS, VLLM)  # beside scripted, a shipped fake without a model, for tests of networks


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine's name, and what it may use.

    threads: of a CPU, the library's own number if None. gpus: their numbers, all that may be used if None. ranks: GPUs
    that share one model. vLLM runs as many engines as there are groups of them, transformers one on the first GPU.
    """

    name: str = AUTO
    threads: int | None = None
    gpus: tuple[int, ...] | None = None
    ranks: int = 1

    def __post_init__(self) -> None:
        if self.name not in (*ENGINES, SCRIPTED):
            raise ConfigError(f"there is no engine {self.name!r}: choose one of {', '.join(ENGINES)}")
        if self.ranks > 1 and self.name == TRANSFORMERS:
            raise ConfigError("only the vllm engine can share a model among GPUs (--tensor-parallel)")
        if self.name == TRANSFORMERS and len(self.gpus or ()) > 1:
            raise ConfigError("the transformers engine uses one GPU: name one with --gpus, or use --engine vllm")

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The GPUs of each engine; nothing on a machine without. Raises: ConfigError: they cannot be shared out so."""
        here = installed.gpus()
        chosen = here if self.gpus is None else self.gpus
        if len(set(chosen)) != len(chosen):
            raise ConfigError(f"--gpus names a GPU twice: {', '.join(map(str, chosen))}")
        missing = sorted(set(chosen) - set(here))
        if missing:
            raise ConfigError(
                f"there is no GPU {missing[0]} to use in this machine: {_said(here)}. Name others with --gpus, or "
                "leave it out to use what there is"
            )
        if self.ranks > 1 and not chosen:
            raise ConfigError(
                f"there is no GPU here to share a model among (--tensor-parallel): {_said(here)}. Leave it "
                "out to use the CPU"
            )
        if len(chosen) % self.ranks:
            raise ConfigError(
                f"{len(chosen)} GPUs cannot be shared out in groups of {self.ranks}: see --tensor-parallel and --gpus"
            )
        return tuple(chosen[i : i + self.ranks] for i in range(0, len(chosen), self.ranks))

    def require_possible(self) -> None:
        """Finds out now, before anything depends on it. Raises: ConfigError: this cannot run here; with what to do."""
        if self.name == SCRIPTED:
            return
        groups = self.groups()
        if self.name == VLLM or self.ranks > 1:
            installed.require_usable(tuple(gpu for group in groups for gpu in group))


def make_engine(choice: EngineChoice, policy: Policy, log: Path, *, generates: bool = True) -> Engine:
    """The engine that `choice` comes to; `log` is where its processes print, if it has any.

    For who only checks `auto` picks transformers: it begins in seconds; vLLM checks faster, and begins later.

    Raises: ConfigError: it is not installed, or cannot run here; the message says what to do.
    """
    choice.require_possible()
    name = _picked(choice, generates) if choice.name == AUTO else choice.name
    if name == SCRIPTED:
        from node.engines.scripted import ScriptedEngine

        return ScriptedEngine(policy)
    groups = choice.groups()
    if name == VLLM:
        from node.engines.vllm.engine import Hardware, VllmEngine

        return VllmEngine(policy, Hardware(groups, choice.threads), log)
    from node.engines.transformers import TransformersEngine

    if len(groups) > 1:
        warn("transformers runs on one GPU", gpu=groups[0][0], unused=len(groups) - 1)
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # nvidia-smi's numbers, read when CUDA starts
    return TransformersEngine(policy, choice.threads, gpu=installed.gpus().index(groups[0][0]) if groups else None)


def _said(gpus: tuple[int, ...]) -> str:
    if gpus:
        return f"there are {', '.join(map(str, gpus))}"
    if installed.torch_is_for_cpus():
        return "the installed torch is built for CPUs only"
    return "it has none, or CUDA_VISIBLE_DEVICES hides them"


def _picked(choice: EngineChoice, generates: bool) -> str:
    """Says what it picks, and why."""
    if choice.ranks > 1:
        event("engine picked", engine=VLLM, because="it alone can share a model among GPUs")
        return VLLM
    if not generates:
        event("engine picked", engine=TRANSFORMERS, because="it begins at once")
        return TRANSFORMERS
    if not installed.is_installed():
        event("engine picked", engine=TRANSFORMERS, because="vllm is not installed")
        return TRANSFORMERS
    try:
        installed.require_usable(tuple(gpu for group in choice.groups() for gpu in group))
    except ConfigError as error:
        warn("engine picked", engine=TRANSFORMERS, because=error)
        return TRANSFORMERS
    event("engine picked", engine=VLLM, because="it is installed and generates fastest")
    return VLLM
