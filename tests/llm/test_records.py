import re
from dataclasses import replace

import pytest

from evoforge.llm import Outcome, Reply, Request, Usage, call_of, reply_of

REQUEST = Request("m", "system", "user", "improve", 100, 0.5, 0, 7)
REPLY = Reply("text", Outcome.OK, Usage(10, 4, 5), 0.25, 1.5, "m", "why", 2, 0.1, 50)


def test_the_hash_is_of_the_question_and_of_nothing_else() -> None:
    assert re.fullmatch("[0-9a-f]{64}", REQUEST.prompt_hash)
    same = [replace(REQUEST, ticket=None), replace(REQUEST, purpose="cross")]
    assert {request.prompt_hash for request in same} == {REQUEST.prompt_hash}
    others = [
        replace(REQUEST, model="n"),
        replace(REQUEST, system="systemu", user="ser"),
        replace(REQUEST, user="user2"),
        replace(REQUEST, max_tokens=101),
        replace(REQUEST, temperature=0.6),
        replace(REQUEST, attempt=1),
        replace(REQUEST, user="\udc80"),
    ]
    assert len({request.prompt_hash for request in [REQUEST, *others]}) == 8


def test_a_call_gives_its_reply_back() -> None:
    call = call_of(REQUEST, REPLY)
    assert reply_of(call) == REPLY
    assert (call.ticket, call.purpose, call.system, call.user) == (7, "improve", "system", "user")
    assert call.prompt_hash == REQUEST.prompt_hash


@pytest.mark.parametrize("counts", [(1, 2, 0), (-1, 0, 0), (1, -1, 0), (1, 0, -1)])
def test_counts_that_cannot_be_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="cached among prompt"):
        Usage(*counts)
