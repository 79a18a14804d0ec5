from __future__ import annotations

from tests.contracts.sample import Sample

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


def row(i: int, *, context: object = 374, generated: object = 44) -> bytes:
    return f"2026-01-05 {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}.6805907,{context},{generated}\n".encode()


SAMPLE = Sample(
    name="azure-llm",
    make=lambda n: HEADER + b"".join(row(i, context=100 + i * 7_919 % 997) for i in range(n)),
    header=HEADER,
    broken=row(99, context=0),
    wrong_type=(row(9, context="many"), "ContextTokens|type"),
)
