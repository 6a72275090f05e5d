"""Plain vLLM in a process of its own: `plain_host.py DESCRIPTOR`, which `plain` starts.

vLLM's own worker and sampler, under the very arguments that the engine's process gives it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

from vllm import SamplingParams
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine

from node.engines.base import Prompt
from node.engines.vllm.messages import Settings
from node.engines.vllm.serving import engine_args


def main() -> None:
    with Connection(int(sys.argv[1])) as connection:
        settings: Settings = connection.recv()
        arguments = engine_args(settings)
        arguments.worker_cls, arguments.load_format = "auto", "safetensors"
        engine = LLMEngine.from_engine_args(arguments)
        connection.send(True)
        while (asked := connection.recv()) is not None:
            connection.send(outputs(engine, *asked))


def outputs(engine: LLMEngine, prompts: Sequence[Prompt], tokens: int, temperature: float) -> list[Prompt]:
    """Exactly `tokens` output tokens of each prompt."""
    params = SamplingParams(
        temperature=temperature,
        max_tokens=tokens,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), tokens_input(list(prompt)), params)
    ended: dict[str, Prompt] = {}
    while len(ended) < len(prompts):
        ended |= {out.request_id: tuple(out.outputs[0].token_ids) for out in engine.step() if out.finished}
    return [ended[str(number)] for number in range(len(prompts))]


if __name__ == "__main__":
    main()
