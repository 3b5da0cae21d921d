"""What this machine's environment says to the tests: their own variables. Of its settings of Streamer they see none."""

import os
from typing import Final

ASKED: Final = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("STREAMER_")}
"""Like ``STREAMER_TEST_FAULTS``; tests, and what they start, inherit no such variable."""

LONG: Final = ASKED.get("STREAMER_TEST_FAULTS") == "long"
"""Whether this is `make faults`: every case in full. Otherwise each runs in a short, seeded form, and pairs stand for matrices."""
