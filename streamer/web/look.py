"""The colours, controls and pictures of every page here, as style sheets: light, and dark where the reader's system is."""

from importlib.resources import files

COLOURS = """
:root { color-scheme: light dark;
  --page: #fbfaf7; --card: #ffffff; --ink: #1d2329; --soft: #59636e; --rule: #dfe2e6; --code: #f0efea;
  --fine: #1f6fb2; --wrong: #d1570f; --held-fine: #b9d3ea; --held-wrong: #f4cbae; --selective: #8a4fa8;
  --on-fine: #ffffff; --on-wrong: #ffffff; --on-held: #1d2329; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14181d; --card: #1c2128; --ink: #e6e9ed; --soft: #a1abb6; --rule: #343c46; --code: #262d36;
  --fine: #6cb2ee; --wrong: #f59a57; --held-fine: #29486a; --held-wrong: #6b3f1d; --selective: #cf9be8;
  --on-fine: #0c1720; --on-wrong: #201004; --on-held: #e6e9ed; } }
"""

CHARTS = """
svg text { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: var(--ink); }
svg .tick, svg .axis { fill: var(--soft); } svg .strong { font-weight: 650; }
svg .note { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2.4; stroke-linejoin: round; }
svg .ship { stroke: var(--fine); } svg .selective { stroke: var(--selective); } svg .exposure { stroke: var(--wrong); }
svg .dot { stroke: var(--card); stroke-width: 2; } svg .dot.ship { fill: var(--fine); }
svg .dot.selective { fill: var(--selective); } svg .dot.exposure { fill: var(--wrong); }
svg .budget { stroke: var(--ink); stroke-width: 1.4; stroke-dasharray: 6 5; }
svg .cut { stroke: var(--ink); stroke-width: 1.4; }
svg rect.fine { fill: var(--fine); } svg rect.wrong { fill: var(--wrong); }
svg rect.held { fill: var(--rule); } svg rect.hold { fill: var(--soft); } svg .limit { stroke: var(--ink); stroke-width: 3; }
svg .on-fine, svg .on-wrong, svg .on-held { font-weight: 650; } svg .on-fine { fill: var(--on-fine); }
svg .on-wrong { fill: var(--on-wrong); }
svg .band { fill-opacity: .18; stroke: none; } svg .band.exposure { fill: var(--wrong); } svg .band.selective { fill: var(--selective); }
"""

COMMON = COLOURS + files("streamer.web").joinpath("static", "common.css").read_text("utf-8")
