"""What a rollout's work is worth, in units: the measure of pay and of the audit draw."""


def rollout_units(
    prompt_tokens: int, output_tokens: int, first_of_group: bool, w_prompt: int, w_output: int, w_attention: int
) -> int:
    """Units of one rollout: its output tokens, the context that each attends to, and the prompt once per group.

    Source: protocol, "Seeds, prompts, noise, audit draw, units". Token counts include the EOS token.
    """
    context = output_tokens * prompt_tokens + output_tokens * (output_tokens - 1) // 2
    prompt = w_prompt * prompt_tokens if first_of_group else 0
    return w_output * output_tokens + w_attention * context + prompt
