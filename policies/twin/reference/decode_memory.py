"""Blocks of a D node in the plain reference: own ones, shared prompt blocks, and retained ones. Rules: docs/twin.md."""

from __future__ import annotations

from collections import OrderedDict

from policies.twin.reference.request import Request, blocks_for

Key = int | tuple[int, int]
"""A prompt block's hash, or (request, place) of a full block that only its request can use."""


class DecodeMemory:
    """One D's blocks. `retained`: full blocks that nobody uses, the first is evicted first."""

    def __init__(self, capacity: int, block_tokens: int, *, share: bool, retain: bool) -> None:
        self.capacity = capacity
        self.block_tokens = block_tokens
        self.share = share
        self.retain = retain
        self.own = 0  # blocks in use that are not shared
        self.references: dict[int, int] = {}  # shared prompt block -> sequences that use it
        self.retained: OrderedDict[Key, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks in use; what is retained takes no room."""
        return self.own + len(self.references)

    @property
    def free(self) -> int:
        """Blocks that may be taken."""
        return self.capacity - self.used

    def _listed(self, request: Request) -> list[int]:
        return request.hashes[: request.prompt_tokens // self.block_tokens] if self.share else []

    def _keys(self, request: Request, blocks: int) -> list[Key]:
        listed = self._listed(request)
        return [listed[k] if k < len(listed) else (request.index, k) for k in range(blocks)]

    def leading(self, request: Request, most: int, *, active: bool) -> int:
        """The longest run of its first blocks that others use, or that are retained unless only `active` ones count."""
        run = 0
        for key in self._keys(request, most):
            if key not in self.references and (active or key not in self.retained):
                break
            run += 1
        return run

    def need(self, request: Request, tokens: int, most: int) -> int:
        """Blocks that must be free for it to hold so many tokens, beside its first ones (at most `most`) in use."""
        return blocks_for(tokens, self.block_tokens) - self.leading(request, most, active=True)

    def refer(self, request: Request, blocks: int) -> None:
        """It uses its first blocks, which are in use or retained."""
        for key in self._keys(request, blocks):
            self.retained.pop(key, None)
            if isinstance(key, int):
                self._share(request, key)
            else:
                self.own += 1
                request.blocks_on_d += 1

    def _share(self, request: Request, block: int) -> None:
        self.references[block] = self.references.get(block, 0) + 1
        request.shared_on_d.append(block)

    def held(self, request: Request) -> int:
        """Blocks that it uses."""
        return request.blocks_on_d + len(request.shared_on_d)

    def hold(self, request: Request, tokens: int, *, computed: bool = True) -> None:
        """It takes what it lacks to hold so many tokens; if they are `computed` its prompt's full blocks are shared."""
        lacking = max(0, blocks_for(tokens, self.block_tokens) - self.held(request))
        self.own += lacking
        request.blocks_on_d += lacking
        while self.retained and self.used + len(self.retained) > self.capacity:
            self.retained.popitem(last=False)
        if computed:
            self.register(request, tokens)

    def register(self, request: Request, tokens: int) -> None:
        """The full blocks of so many tokens of its prompt become shared ones; what others use by then stays a copy."""
        known = len(request.shared_on_d) + len(request.copies)
        listed = self._listed(request)
        for place in range(known, min(tokens // self.block_tokens, len(listed))):
            block = listed[place]
            if block in self.references:
                request.copies.add(place)
                continue
            self.own -= 1
            request.blocks_on_d -= 1
            self.retained.pop(block, None)
            self._share(request, block)

    def release(self, request: Request, tokens: int) -> int:
        """It gives all back; of the full blocks of so many tokens the last is retained first. Returns blocks freed."""
        before = self.used
        known = len(request.shared_on_d) + len(request.copies)
        for place, key in reversed(list(enumerate(self._keys(request, tokens // self.block_tokens)))):
            if place in request.copies:
                continue
            if place < known:
                assert isinstance(key, int)
                self.references[key] -= 1
                if self.references[key] > 0:
                    continue
                del self.references[key]
            if self.retain:
                self.retained[key] = None
        self.own -= request.blocks_on_d
        request.blocks_on_d = 0
        request.shared_on_d = []
        request.copies = set()
        return before - self.used
