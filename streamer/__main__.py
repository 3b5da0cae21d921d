"""`python -m streamer` is the command `streamer`."""

from streamer.cli import main

if __name__ == "__main__":
    main()
