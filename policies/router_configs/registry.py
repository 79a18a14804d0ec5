"""Forms of router config by name."""

from __future__ import annotations

from features.errors import PolicyError
from policies.families.registry import params_of
from policies.policy import Policy
from policies.router_configs import dynamo, gateway_args, llm_d
from policies.router_configs.base import ConfigFormat, Imported

FORMATS: tuple[ConfigFormat, ...] = (
    dynamo.YAML,
    dynamo.ENV,
    llm_d.YAML,
    llm_d.OLD_YAML,
    *gateway_args.FORMATS,
)
BY_NAME = {each.name: each for each in FORMATS}


def find(name: str) -> ConfigFormat:
    """PolicyError if there is no such format."""
    if name not in BY_NAME:
        raise PolicyError("a config must be of a known format", value=name, hint=f"one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def read_config(name: str, text: str) -> Imported:
    """What a router's config says."""
    return find(name).read(text)


def write_config(name: str, policy: Policy) -> str:
    """A policy's parameters as a router's config; the same text is read back before it is handed out."""
    form = find(name)
    if policy.family != form.family:
        fitting = ", ".join(each.name for each in FORMATS if each.family == policy.family) or "none"
        raise PolicyError(f"this config is of {form.family}", value=policy.family, hint=f"formats of it: {fitting}")
    text = form.write(params_of(policy.family, policy.params))
    form.read(text)
    return text
