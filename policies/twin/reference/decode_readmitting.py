"""The D node that lets preempted sequences run before it takes on others. Rules: docs/twin.md."""

from __future__ import annotations

from policies.twin.reference.decode import DecodeNode
from policies.twin.reference.decode_state import Boundary


class ReadmittingNode(DecodeNode):
    """One D with `boundary_order = "readmit_first"`."""

    def _between_steps(self, result: Boundary, now: int) -> float:
        extra_s = self._readmit()
        self._activate(result, now)
        if not self.waiting:
            self._reserve(result, now)
        self._grow()
        return extra_s

    def _readmit(self) -> float:
        """Let preempted sequences run again. Returns the seconds that their recompute adds to the next step."""
        seconds = 0.0
        while self.waiting and len(self.running) < self.discipline.decode_max_seqs and self._fits(self.waiting[0]):
            seconds += self._run(self.waiting[0])
        return seconds

    def _activate(self, result: Boundary, now: int) -> None:
        while self.landed and len(self.running) < self.discipline.decode_max_seqs:
            request = self.landed.popleft()
            request.activated_ns = now
            self.memory.register(request, request.prompt_tokens)
            self.running.append(request)
            result.activated.append(request)
