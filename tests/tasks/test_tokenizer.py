"""The adapter around transformers' tokenizers: local, without code of the folder, and proof against any ids."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.errors import EngineError
from node.models.cache import default_cache
from node.tasks.base import Tokenizer
from node.tasks.tokenizer import load_tokenizer

BYTE_0 = 8  # the tiny model's id of byte 0; the eight ids before it are its special tokens


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def test_chat_follows_the_folders_template(tiny_tokenizer: Tokenizer) -> None:
    def text(content: str) -> tuple[int, ...]:
        return tuple(BYTE_0 + byte for byte in content.encode())

    ids = tiny_tokenizer.chat([("system", "Add."), ("user", "1 + é")])

    bos, eos, system, user, assistant = 0, 1, 3, 4, 5
    assert ids == (bos, system, *text("Add."), eos, user, *text("1 + é"), eos, assistant)


def test_text_leaves_special_tokens_out_and_keeps_spaces(tiny_tokenizer: Tokenizer) -> None:
    ids = [0, *(BYTE_0 + byte for byte in b"1 , 2 ."), 1]

    assert tiny_tokenizer.decode(ids) == "1 , 2 ."


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-5, 2**32 - 1) | st.integers(0, 263), max_size=40))
def test_any_ids_have_a_text(tiny_tokenizer: Tokenizer, ids: list[int]) -> None:
    known = [token for token in ids if 0 <= token < 264]

    assert tiny_tokenizer.decode(ids) == bytes(t - BYTE_0 for t in known if t >= BYTE_0).decode(errors="replace")


def test_threads_may_share_a_tokenizer(tiny_tokenizer: Tokenizer) -> None:
    def prompt(number: int) -> tuple[int, ...]:
        return tiny_tokenizer.chat([("user", str(number))])

    with ThreadPoolExecutor(8) as threads:
        prompts = list(threads.map(prompt, range(200)))

    assert prompts == [prompt(number) for number in range(200)]


def test_a_folder_that_is_not_there_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no usable tokenizer"):
        load_tokenizer(tmp_path / "absent")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\xfe", b'{"version": "1.0", "model": {"type'])
def test_a_broken_file_is_no_tokenizer(folder: Path, content: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(content)

    with pytest.raises(EngineError, match="no usable tokenizer"):
        load_tokenizer(folder)


def test_code_of_the_folder_is_not_run(folder: Path) -> None:
    (folder / "hostile.py").write_text("import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n")
    config = json.loads((folder / "tokenizer_config.json").read_bytes())
    config |= {"tokenizer_class": "Hostile", "auto_map": {"AutoTokenizer": ["hostile.Hostile", "hostile.Hostile"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))

    with pytest.raises(EngineError, match="custom code"):
        load_tokenizer(folder)
    assert not (folder / "ran").exists()


def test_without_a_chat_template_there_are_no_prompts(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()

    with pytest.raises(EngineError, match="no chat template"):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    "template",
    ["{% for %}", "{{ 1 / 0 }}", "{{ raise_exception('no') }}", "{{ ''.__class__.__mro__ }}", "{{ messages.a.b }}"],
)
def test_a_template_that_fails_is_an_engine_error(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)

    with pytest.raises(EngineError, match="chat template failed"):
        load_tokenizer(folder).chat([("user", "1 + 1 =")])


def test_smollm2_asks_an_arithmetic_question_in_35_tokens() -> None:
    folders = sorted(default_cache().glob("smollm2-*"))
    if not folders:
        pytest.skip("smollm2 is not in this machine's model cache")

    prompt = load_tokenizer(folders[0]).chat(
        [
            ("system", "You are a calculator."),
            ("user", "State the final answer to the following arithmetic problem: 7 - 0 ="),
        ]
    )

    assert len(prompt) == 35
