"""What becomes of gates whose answers silently change: many at once, on real services; `python -m tests.e2e.swap`."""
