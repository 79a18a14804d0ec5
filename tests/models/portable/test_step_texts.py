"""Where an estimate is extrapolated, it says so to people."""

from __future__ import annotations

from models.portable.steps import DECODE_INPUTS, outside_text


def test_what_lies_outside_is_named_with_its_range() -> None:
    measured = ((1.0, 128.0), (1_000.0, 900_000.0))
    assert outside_text("decode", DECODE_INPUTS, (64.0, 5_000.0), measured) == ()
    (text,) = outside_text("decode", DECODE_INPUTS, (256.0, 5_000.0), measured)
    assert text == "decode sequences 256 lies outside of the measured 1..128"


def test_a_type_that_was_never_measured_says_so() -> None:
    (text,) = outside_text("decode", DECODE_INPUTS, (1.0, 1.0), ())
    assert "no step was measured" in text
