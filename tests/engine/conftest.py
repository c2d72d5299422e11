"""Tests here attach the hooks themselves: without this the installed plugin would attach them to every engine, the
plain ones to compare with included.
"""

from __future__ import annotations

import os

os.environ["KVTIDE_DISABLE"] = "1"
