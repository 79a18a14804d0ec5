"""What answers book on a D of the plain reference, whole or in stages. Rules: docs/twin.md, `admission`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from policies.twin.cluster import Discipline
from policies.twin.reference.request import Request, blocks_for


@dataclass(frozen=True, slots=True)
class Admission:
    """The rule of one D of so many blocks."""

    discipline: Discipline
    capacity: int
    block_tokens: int

    @property
    def staged(self) -> bool:
        """Answers are admitted stage by stage."""
        return self.discipline.admission == "staged"

    def next_stage(self, request: Request) -> None:
        """What it books from now on ends with the stage that begins at, or holds, its next token."""
        stage = self.discipline.stage_tokens
        request.stage_end = (request.tokens_made // stage + 1) * stage

    def _booked(self, request: Request) -> int:
        answer = request.stage_end if self.staged else max(request.estimated_output, 0)
        return blocks_for(request.prompt_tokens + answer, self.block_tokens)

    def fits(self, request: Request, placed: Iterable[Request]) -> bool:
        """Whether what the others of those placed on D have booked leaves room for this one."""
        others = sum(self._booked(r) for r in placed if r is not request)
        return others == 0 or others + self._booked(request) <= self.capacity
