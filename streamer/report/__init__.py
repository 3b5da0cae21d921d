"""The demo's report: one self-contained HTML page, and its summary for a terminal."""
