"""Engines: what turns prompts into rollouts, and looks at rollouts again."""
