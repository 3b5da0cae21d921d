"""Runs the command: ``python3 -m streamer_verify``, or as `verify.pyz`."""

import sys

from streamer_verify.command import main

if __name__ == "__main__":
    sys.exit(main())
