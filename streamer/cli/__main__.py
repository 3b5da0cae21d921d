"""`python -m streamer.cli` is the command `streamer`."""

import sys

from streamer.cli import main

sys.exit(main())
