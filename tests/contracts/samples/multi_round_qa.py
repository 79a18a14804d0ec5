from __future__ import annotations

from tests.contracts.sample import Sample
from tests.features.logs import START_US

HEADER = b"prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,finish_time\n"


def row(i: int, *, prompt: object = 21_073.0) -> bytes:
    launch = START_US / 1_000_000 + i
    return f"{prompt},100.0,0.4375,1.25,{i % 7},{i // 7 + 1},{launch},{launch + 1.6875}\n".encode()


SAMPLE = Sample(
    name="multi-round-qa",
    make=lambda n: HEADER + b"".join(row(i, prompt=float(21_073 + i * 7_919 % 997)) for i in range(n)),
    header=HEADER,
    broken=row(99, prompt=0.5),
    wrong_type=(row(9, prompt="many"), "prompt_tokens|type"),
)
