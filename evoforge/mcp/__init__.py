"""Campaigns for agents over the Model Context Protocol, on stdin and stdout only."""

from evoforge.mcp._serve import serve
from evoforge.mcp._tools import Tools

__all__ = ["Tools", "serve"]
