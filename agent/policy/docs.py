"""Write docs/policy.md from the policy's own types: ``python -m agent.policy.docs [--check]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from agent.generated_page import DOCS, rows, write_or_check
from agent.policy.profiles import OVERRIDES
from agent.policy.section import Section
from agent.policy.types import DEFAULT, Policy

TARGET = DOCS / "policy.md"

HEAD = """# Policy: every threshold, and what may be done

Generated from `agent/policy/` by `make generate`; do not edit.

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
- `kvtide policy explain KEY` tells what a key does, what may be there, its value and where that is from, and which
  modules read it; `kvtide policy schema` prints the file's JSON schema.
- The file is loaded again by SIGHUP, by `POST /-/reload` on the control socket (see [actions](actions.md)), and by the
  same on the agent's port where `http.reload` is true. All of it or nothing: a file that is wrong leaves the policy as
  it was, with the reason in the log, in the answer and in the state, and `kvtide_policy_loaded` is 0. Verdicts that
  stand go on standing, by the new thresholds.

## Profiles

`default` and `textbook` have the numbers of the incident write-ups. They differ in what the numbers are held against.

| profile | judges |
|---|---|
| `default` | use where there is harm (work waits for memory, is preempted, refused or rebuilt), growth that live \
requests do not explain, forecasts that are short. A healthy busy engine is quiet: its pool is nearly full because \
that is what throughput is |
| `latency` | as `default`, sooner: for a service that people wait for. See the table below |
| `throughput` | as `default`, later: for work in bulk, where a full pool and a long queue are what is wanted |
| `textbook` | use and growth alone, as the write-ups do: louder, and what to compare with |

PROFILES_HERE
## Keys

Ratios are 0..1; rates are shares of the pool (or of the memory) a minute; times are seconds.
"""

TAIL = """
## Order

Some keys are steps of one ladder and must not fall in this order; a file in which they do is refused.

"""


def _profiles() -> str:
    """What the profiles change, as a table."""
    changed = [f"{section}.{key}" for section, keys in OVERRIDES["latency"].items() for key in keys]
    lines = [f"| key | default | {' | '.join(OVERRIDES)} |", f"|---|---|{'---|' * len(OVERRIDES)}"]
    for key in changed:
        section, name = key.split(".")
        values = [getattr(getattr(DEFAULT, section), name), *(each[section][name] for each in OVERRIDES.values())]
        lines.append(f"| `{key}` | {' | '.join(f'`{value}`' for value in values)} |")
    return "\n".join(lines) + "\n"


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
    return HEAD.replace("PROFILES_HERE", _profiles()) + "".join(_sections()) + TAIL + "\n".join(_ladders()) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, render, sys.argv[1:]))
