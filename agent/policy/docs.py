"""Write docs/policy.md from the policy's own types: ``python -m agent.policy.docs [--check]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from agent.generated_page import DOCS, rows, write_or_check
from agent.policy.types import Policy, Section

TARGET = DOCS / "policy.md"

HEAD = """# Policy: every threshold

Generated from `agent/policy/types.py` by `make generate`; do not edit.

A policy is a YAML file with a profile and only the keys that differ from it; every key has a default.

```yaml
profile: default
growth:
  page_per_minute: 0.05      # of the pool; unexplained growth that pages
serving:
  queue_page: 200
```

- `kvtide policy show` prints the whole policy with a comment for each key, `kvtide policy show FILE` that of a file,
  `kvtide policy show --profile textbook` that of a profile. What it prints is a policy file.
- `kvtide policy check FILE` says in one line what is wrong with a file: an unknown key, a value that can't be, a warn
  threshold above its page threshold, a key that is there twice.
- `kvtide backtest --policy FILE --against default --from ...` tells what the file would have changed: see
  [backtest](backtest.md). Try a threshold there before it wakes anybody.

## Profiles

Both have the numbers of the incident write-ups. They differ in what the numbers are held against.

| profile | judges |
|---|---|
| `default` | use where there is harm (work waits for memory, is preempted, refused or rebuilt), growth that live \
requests do not explain, forecasts that are short. A healthy busy engine is quiet: its pool is nearly full because \
that is what throughput is |
| `textbook` | use and growth alone, as the write-ups do: louder, and what to compare with |

## Keys

Ratios are 0..1; rates are shares of the pool (or of the memory) a minute; times are seconds.
"""

TAIL = """
## Order

Some keys are steps of one ladder and must not fall in this order; a file in which they do is refused.

"""


def _ladders() -> Iterator[str]:
    for name, field in Policy.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            for keys in kind.ascending:
                yield "- " + " <= ".join(f"`{name}.{key}`" for key in keys)


def _sections() -> Iterator[str]:
    loose = []
    for name, field in Policy.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield f"\n{(kind.__doc__ or '').splitlines()[0]}\n\n| key | default | meaning |\n|---|---|---|\n"
            yield "".join(f"{row}\n" for row in rows(kind, f"{name}."))
        else:
            loose.append(f"| `{name}` | `{field.default}` | {field.description} |\n")
    yield "\nThe rest.\n\n| key | default | meaning |\n|---|---|---|\n" + "".join(loose)


def render() -> str:
    """Return the page."""
    return HEAD + "".join(_sections()) + TAIL + "\n".join(_ladders()) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, render, sys.argv[1:]))
