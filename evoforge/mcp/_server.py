"""The tools as the official SDK serves them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError

from evoforge import __version__
from evoforge.errors import EvoforgeError
from evoforge.mcp._tools import Tools
from evoforge.mcp._turns import Turns
from evoforge.prompts import Identity, scrub
from evoforge.prompts.files import near

__all__ = ["build_server"]

_INSTRUCTIONS = """Evolves kernels that compute what a PyTorch reference computes, faster. `campaigns` lists the \
searches. `ask` gives a ticket with a prompt: write the kernel it describes and give it to `tell`, which judges it for \
correctness and speed (seconds to a minute). Every ticket takes one answer. A verdict other than CORRECT says what \
went wrong: ask for another ticket and mend it."""

_Campaign = Annotated[str, Field(description="The campaign's name, as `campaigns` lists it.")]
_Context = Context[Any, Any]
_TELL_EVERY_S = 2
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_log = logging.getLogger("evoforge.mcp")


class _Server(MCPServer):
    """An `MCPServer` whose errors are one sentence each."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        for tool in await self.list_tools():
            known = list(tool.input_schema.get("properties", ()))
            if tool.name == name and (unknown := [one for one in arguments if one not in known]):
                raise ToolError(
                    f"unknown argument {unknown[0][:80]!r} of {name}{near(unknown[0], known) or ', which takes none'}"
                )
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            raise ToolError(_sentence(name, error)) from None


def _sentence(name: str, error: ToolError) -> str:
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        parts = [f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in cause.errors()]
        return f"expected the arguments of {name} to fit its schema, got {'; '.join(parts)}"
    if isinstance(cause, EvoforgeError):
        return " ".join(scrub(str(cause), Identity.here()).split())
    if isinstance(cause, OSError):
        return f"this machine refuses to go on: {cause.strerror or type(cause).__name__}"
    if cause is None:
        return " ".join(str(error).split())
    _log.error("tool %r failed", name, exc_info=cause)
    return f"this is a bug in evoforge: {type(cause).__name__}; the server's stderr says where"


def build_server(tools: Tools, turns: Turns) -> MCPServer:
    """A server of these tools, which take their turns."""

    async def run(call: Callable[..., dict[str, Any]], *args: Any, told: _Context | None = None) -> dict[str, Any]:
        """The call's result; who is `told` hears every few seconds that it goes on, lest its client gives up."""
        turn = turns.submit(functools.partial(call, *args), kept=call == tools.tell)
        future = asyncio.wrap_future(turn)
        waited = 0
        while told is not None and not (await asyncio.wait({future}, timeout=_TELL_EVERY_S))[0]:
            waited += _TELL_EVERY_S
            await told.report_progress(waited, message="at work")
        return await future

    server = _Server("evoforge", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")

    @server.tool(annotations=_READS)
    async def campaigns() -> dict[str, Any]:
        """The campaigns of the store: task, target, state, best speed-up, coverage."""
        return await run(tools.campaigns)

    @server.tool()
    async def ask(
        context: _Context,
        campaign: _Campaign,
        emitter: Annotated[
            str | None,
            Field(description="invent, improve, aim, cross, repair or parametrise; absent: what promises most."),
        ] = None,
    ) -> dict[str, Any]:
        """Takes a ticket: a prompt with the task, the contract and what was tried, to be answered with `tell`."""
        return await run(tools.ask, campaign, emitter, told=context)

    @server.tool()
    async def tell(
        context: _Context,
        campaign: _Campaign,
        ticket: Annotated[int, Field(description="The number that `ask` gave.", ge=0)],
        answer: Annotated[
            str | None, Field(description="The kernel's whole source, or a reply as the prompt asks for it.")
        ] = None,
        file: Annotated[
            str | None, Field(description="Instead: a file that holds it, relative to the server's folder.")
        ] = None,
    ) -> dict[str, Any]:
        """Judges the answer to a ticket: status, reason, timing, bound, cell, placement."""
        return await run(tools.tell, campaign, ticket, answer, file, told=context)

    @server.tool()
    async def evaluate(
        context: _Context,
        task: Annotated[str, Field(description="A task file (.py), relative to the server's folder.")],
        source: Annotated[str | None, Field(description="The kernel's whole source.")] = None,
        file: Annotated[
            str | None, Field(description="Instead: a file that holds it, relative to the server's folder.")
        ] = None,
    ) -> dict[str, Any]:
        """Judges one kernel against a task file, beside eager and torch.compile; no campaign, nothing is stored."""
        return await run(tools.evaluate, task, source, file, told=context)

    @server.tool(annotations=_READS)
    async def elites(campaign: _Campaign) -> dict[str, Any]:
        """The best kernel of every niche of a campaign."""
        return await run(tools.elites, campaign)

    @server.tool(annotations=_READS)
    async def show(
        candidate: Annotated[str, Field(description="A candidate's id, or its unique beginning.")],
    ) -> dict[str, Any]:
        """One candidate: source, origin and every evaluation."""
        return await run(tools.show, candidate)

    return server
