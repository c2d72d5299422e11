"""``python -m bench.score``: judge the labelled corpus, print the score of both profiles, write build/score.json.

Exits with 1 when a target is missed in the default profile.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bench.score.match import Outcome, judged
from bench.score.report import table
from bench.score.run import chosen, heard, progress
from bench.score.tally import misses, tally

RESULT = Path(__file__).parents[2] / "build" / "score.json"


def main() -> int:
    """Run what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.score", description="Score the verdicts on the corpus.")
    parser.add_argument("--tuning", action="store_true", help="the part to tune on, with each miss and false alarm")
    parser.add_argument("--quick", action="store_true", help="one short scenario of each recipe: less than a minute")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has TEXT in it")
    parser.add_argument("--misses", action="store_true", help="list each miss and false alarm of the default profile")
    options = parser.parse_args()
    began = time.monotonic()
    wanted = chosen("tuning" if options.tuning else "evaluation", quick=options.quick, only=options.only)
    if not wanted:
        parser.error("no scenario has such a name")
    outcomes: dict[str, list[Outcome]] = {"default": [], "textbook": []}
    states, listed = 0, options.tuning or options.misses
    for each in progress(heard(wanted), len(wanted)):
        states += each.states
        for profile, found in outcomes.items():
            found.append(judged(each, profile))
        if listed:
            for line in misses(outcomes["default"][-1:]):
                print(line, flush=True)
    results = {profile: tally(found) for profile, found in outcomes.items()}
    print(table(results), flush=True)
    took = time.monotonic() - began
    print(f"[score] {len(wanted)} scenarios, {states:,} states in {took:.0f} s", file=sys.stderr)
    if not options.only:
        part = ("tuning" if options.tuning else "evaluation") + (", quick" if options.quick else "")
        told = {"part": part, "states": states, "seconds": round(took)}
        RESULT.parent.mkdir(exist_ok=True)
        profiles = {profile: result.as_json() for profile, result in results.items()}
        RESULT.write_text(json.dumps(told | {"profiles": profiles}, indent=1) + "\n", encoding="utf-8")
    return int(not all(results["default"].targets().values()))


if __name__ == "__main__":
    sys.exit(main())
