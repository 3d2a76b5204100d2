"""Names and hashes: the readable name of a case, and digests that decide whether two things are the same."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from harness.model import Study, Values


def case_name(study: Study, levels: Values, configuration: Values, problem: str) -> str:
    """A readable name: levels that differ from full, the configuration, and a problem that is not the
    default.

    `full@m128n64w4s2`, `head_dim=128,gmem_copy=stripped@m128n32w4s2`. Distinct cases have distinct names.
    """
    changed = [f"{s.name}={levels[s.name]}" for s in study.switches if levels[s.name] != s.baseline]
    name = ",".join(changed) or "full"
    if configuration:
        name += "@" + configuration_slug(configuration)
    if problem != study.problems[0]:
        name += f"+{problem}"
    return name


def configuration_slug(configuration: Values) -> str:
    """`block_m=128, block_n=64, warps=4, stages=2` as `m128n64w4s2`: the last part's initial, then the
    number."""
    return "".join(f"{name.rsplit('_', 1)[-1][0]}{level}" for name, level in configuration.items())


def digest(*parts: str | bytes) -> str:
    """SHA-256 over the parts, each with its length so that no two lists collide; hex."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()


def digest_mapping(values: Mapping[str, object]) -> str:
    """SHA-256 of a JSON-able mapping, independent of its order; hex."""
    return digest(json.dumps(values, sort_keys=True, allow_nan=False))


def safe_name(text: str) -> str:
    """A file name for any text: readable, at most 80 characters, distinct for distinct texts.

    Letters, digits, dot, dash and underscore stay; whatever else changes the text adds a short hash.
    """
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:64]
    if slug == text and slug:
        return slug
    return f"{slug or 'unnamed'}-{digest(text)[:10]}"
