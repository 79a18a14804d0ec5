"""Names of GPUs and types of nodes, and what their data sheets say of one another."""

from __future__ import annotations

import pytest

from models.gpus import GPUS, gpu, nearest, node_type, slower, type_name


@pytest.mark.parametrize(
    ("written", "name"),
    [("H100", "h100"), ("NVIDIA H100 80GB", "h100"), ("h100_sxm", "h100"), ("A100-SXM4-80GB", "a100"),
     ("h100-pcie", "h100-pcie"), ("RTX 4090", "rtx4090"), ("amd-mi300x", "mi300x")],
)  # fmt: skip
def test_a_gpu_is_found_as_people_write_it(written: str, name: str) -> None:
    assert gpu(written) == GPUS[name]


def test_an_unknown_gpu_is_unknown() -> None:
    assert gpu("tpu-v5") is None
    assert slower("tpu-v5/tp1", "h100/tp1", "flops") is None
    assert slower("*", "h100/tp1", "flops") is None


def test_types_have_names() -> None:
    assert type_name("H100", 4) == "h100/tp4"
    assert type_name("h100", None) == "h100/tp1"
    assert type_name(None, 4) is None
    found = node_type("llama/h100/tp4")
    assert found is not None
    assert (found.family, found.gpu, found.tensor_parallel) == ("llama", "h100", 4)
    assert node_type("*") is None


def test_twice_the_gpus_take_half_the_time() -> None:
    assert slower("h100/tp2", "h100/tp4", "memory") == pytest.approx(2.0)
    assert slower("a100/tp1", "h100/tp1", "memory") == pytest.approx(3350 / 2039)


def test_the_nearest_type_is_of_the_same_family_and_parallel() -> None:
    among = ["m/h100/tp4", "m/a100/tp8", "n/a100/tp4", "m/b200/tp4"]
    assert nearest("m/a100/tp4", among, "memory") == "m/h100/tp4"
    assert nearest("m/a100/tp8", ["m/h100/tp4", "m/a100/tp4"], "memory") == "m/h100/tp4"
    assert nearest("m/a100/tp8", [], "memory") is None
    assert nearest("*", ["h100/tp4", "a100/tp4"], "memory") == "a100/tp4"
