"""What the twin does not model is refused by name: a policy tested without it would be tested on another pool."""

from __future__ import annotations

from collections.abc import Iterator

from features.errors import SettingsError
from pipelines.settings_file import PoolFile
from pipelines.settings_pool_file import EngineFile, KvFile
from policies.families.registry import FAMILIES

_ASK = "routecal would learn from a pool that is not yours; leave this pool out until the twin models it"


def refuse(name: str, pool: PoolFile, place: str) -> None:
    """Raises SettingsError for the first thing that the twin does not model."""
    known = f"it models {', '.join(FAMILIES)}"
    found = [(item, _ASK) for item in (*_kv(pool.kv), *_engine(pool.engine), *_pool(pool))]
    found += [(item, known) for item in _families(pool)]
    for (key, value, what), hint in found[:1]:
        raise SettingsError(
            f"the twin does not model {what}", value=value, place=f"{place}: pools.{name}.{key}", hint=hint
        )


def _kv(kv: KvFile) -> Iterator[tuple[str, object, str]]:
    given = {key for key in ("kv_heads", "head_dim", "kv_lora_rank", "rope_dim") if getattr(kv, key) is not None}
    wanted = {"gqa": {"kv_heads", "head_dim"}, "mla": {"kv_lora_rank", "rope_dim"}}
    if kv.attention not in wanted:
        yield "kv.attention", kv.attention, "attention other than gqa and mla (hybrid and sliding windows keep less KV)"
    elif given != wanted[kv.attention]:
        need = " and ".join(sorted(wanted[kv.attention]))
        yield "kv", sorted(given), f"{kv.attention} without its geometry (exactly {need})"
    if kv.hash_block_tokens not in {None, kv.block_tokens}:
        yield (
            "kv.hash_block_tokens",
            kv.hash_block_tokens,
            f"prefix hashes of other blocks than KV's ({kv.block_tokens})",
        )


def _engine(engine: EngineFile) -> Iterator[tuple[str, object, str]]:
    for key, modelled, what in (
        ("order", {"fifo", "priority"}, "another order of the prefill queue than fifo and priority"),
        ("tiers", {("hbm",)}, "KV tiers beyond HBM"),
        ("lora", {False}, "LoRA adapters"),
        ("speculative_decoding", {False}, "speculative decoding"),
    ):
        value = getattr(engine, key)
        if value not in modelled:
            yield f"engine.{key}", value, what


def _pool(pool: PoolFile) -> Iterator[tuple[str, object, str]]:
    for at, node in enumerate(pool.nodes):
        if node.role == "colocated":
            yield f"nodes[{at}].role", node.role, "nodes that do both prefill and decode"


def _families(pool: PoolFile) -> Iterator[tuple[str, object, str]]:
    if pool.incumbent.family not in FAMILIES:
        yield "incumbent.family", pool.incumbent.family, "this router family"
    for at, family in enumerate(pool.router.families or ()):
        if family not in FAMILIES:
            yield f"router.families[{at}]", family, "this router family"
