"""Meta-prompts and what is made of them: files, versions, credit, evolution; requests and replies."""

from evoforge.prompts.brief import BOTTLENECKS, LLM_OPERATORS, Attempt, Brief, KernelBrief, Prompt, Send, TaskBrief
from evoforge.prompts.cards import Card, load_cards, parse_card, pick_cards
from evoforge.prompts.distance import prompt_distance
from evoforge.prompts.edits import Edit, apply_edits, find_edits, render_edits
from evoforge.prompts.evolve import Vocabulary, breed, cross_sections, mutate_strategy
from evoforge.prompts.files import format_meta_prompt, load_meta_prompts, parse_meta_prompt, read_meta_prompt
from evoforge.prompts.pool import Credit, Evidence, Note, PromptPool
from evoforge.prompts.render import estimate_tokens, load_contract, render
from evoforge.prompts.reply import Answer, parse_reply
from evoforge.prompts.rewrite import apply_rewrite, rewrite_request
from evoforge.prompts.scrub import Identity, code_only, scrub, scrub_source

__all__ = [
    "BOTTLENECKS",
    "LLM_OPERATORS",
    "Answer",
    "Attempt",
    "Brief",
    "Card",
    "Credit",
    "Edit",
    "Evidence",
    "Identity",
    "KernelBrief",
    "Note",
    "Prompt",
    "PromptPool",
    "Send",
    "TaskBrief",
    "Vocabulary",
    "apply_edits",
    "apply_rewrite",
    "breed",
    "code_only",
    "cross_sections",
    "estimate_tokens",
    "find_edits",
    "format_meta_prompt",
    "load_cards",
    "load_contract",
    "load_meta_prompts",
    "mutate_strategy",
    "parse_card",
    "parse_meta_prompt",
    "parse_reply",
    "pick_cards",
    "prompt_distance",
    "read_meta_prompt",
    "render",
    "render_edits",
    "rewrite_request",
    "scrub",
    "scrub_source",
]
