"""Meta-prompts and what is made of them: files, versions, credit, evolution; requests and replies."""

from evoforge.prompts.brief import BOTTLENECKS, LLM_OPERATORS, Attempt, Brief, KernelBrief, Prompt, Send, TaskBrief
from evoforge.prompts.cards import Card, load_cards, parse_card, pick_cards
from evoforge.prompts.edits import Edit, apply_edits, find_edits, render_edits
from evoforge.prompts.files import format_meta_prompt, load_meta_prompts, parse_meta_prompt, read_meta_prompt
from evoforge.prompts.pool import Credit, PromptPool
from evoforge.prompts.render import estimate_tokens, load_contract, render
from evoforge.prompts.reply import Answer, parse_reply
from evoforge.prompts.scrub import Identity, scrub, scrub_source

__all__ = [
    "BOTTLENECKS",
    "LLM_OPERATORS",
    "Answer",
    "Attempt",
    "Brief",
    "Card",
    "Credit",
    "Edit",
    "Identity",
    "KernelBrief",
    "Prompt",
    "PromptPool",
    "Send",
    "TaskBrief",
    "apply_edits",
    "estimate_tokens",
    "find_edits",
    "format_meta_prompt",
    "load_cards",
    "load_contract",
    "load_meta_prompts",
    "parse_card",
    "parse_meta_prompt",
    "parse_reply",
    "pick_cards",
    "read_meta_prompt",
    "render",
    "render_edits",
    "scrub",
    "scrub_source",
]
