"""Meta-prompts: their files, their versions and their credit."""

from evoforge.prompts.files import format_meta_prompt, load_meta_prompts, parse_meta_prompt, read_meta_prompt
from evoforge.prompts.pool import Credit, PromptPool

__all__ = [
    "Credit",
    "PromptPool",
    "format_meta_prompt",
    "load_meta_prompts",
    "parse_meta_prompt",
    "read_meta_prompt",
]
