"""The style sheet of the report page."""

import re

from streamer.web.plot import CHARTS, COLOURS

STYLE = (
    COLOURS
    + CHARTS
    + """* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.2rem 1.4rem 4rem; }
h1 { font-size: 1.05rem; font-weight: 600; color: var(--soft); margin: 0 0 .6rem; }
.result { font-size: clamp(1.35rem, 3.2vw, 1.95rem); line-height: 1.3; font-weight: 650; margin: 0 0 .5rem;
  text-wrap: balance; }
.verdict { margin: 0 0 1.4rem; color: var(--soft); max-width: 46rem; }
.banner { border-left: 4px solid var(--selective); background: var(--card); padding: .6rem .9rem; margin: 0 0 1.4rem;
  border-radius: 0 6px 6px 0; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; }
p, li { max-width: 46rem; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1rem 1.1rem; }
figure { margin: 1.1rem 0 0; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { color: var(--soft); margin-top: .5rem; max-width: 46rem; }
.share { display: flex; height: 4.2rem; border-radius: 8px; overflow: hidden; gap: 2px; }
.share div { display: flex; align-items: center; justify-content: center; min-width: 0; font-weight: 650;
  overflow: hidden; white-space: nowrap; }
.s-fine { background: var(--fine); color: var(--on-fine); } .s-wrong { background: var(--wrong); color: var(--on-wrong); }
.h-fine { background: var(--held-fine); color: var(--on-held); }
.h-wrong { background: var(--held-wrong); color: var(--on-held); }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; list-style: none; margin: .6rem 0 0; padding: 0;
  color: var(--soft); font-size: .95rem; }
.key i { display: inline-block; width: .85rem; height: .85rem; border-radius: 3px; margin-right: .4rem;
  vertical-align: -.08rem; }
.key i.l { height: .28rem; width: 1.3rem; vertical-align: .2rem; border-radius: 2px; }
.k-wrong { background: var(--wrong); } .k-held { background: var(--soft); } .k-ship, .k-fine { background: var(--fine); } .k-selective { background: var(--selective); } .k-exposure { background: var(--wrong); }
.scroll { overflow-x: auto; } .scroll table { min-width: 38rem; }
table { border-collapse: collapse; width: 100%; font-size: .97rem; }
caption { text-align: left; color: var(--soft); padding: 0 0 .5rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .8rem .45rem 0; border-top: 1px solid var(--rule); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; }
tbody th { font-weight: 600; white-space: nowrap; }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap; font-weight: 650; }
.cases { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1rem; margin-top: 1rem; }
.case-head { display: flex; align-items: center; gap: .5rem; }
.case-head i { width: .85rem; height: .85rem; border-radius: 3px; }
.cases ul { list-style: none; margin: 0; padding: 0; }
.cases li { border-top: 1px solid var(--rule); padding: .55rem 0; overflow-wrap: anywhere; }
.cases .ask { color: var(--soft); } .cases .score { color: var(--soft); font-size: .88rem; }
.cases blockquote { margin: .15rem 0; font-weight: 550; }
code { background: var(--code); border-radius: 4px; padding: .08rem .3rem; font-size: .93em; overflow-wrap: anywhere; }
dl.next { display: grid; grid-template-columns: max-content 1fr; gap: .5rem 1.1rem; margin: .8rem 0 0; }
dl.next dd { margin: 0; } dl.next dt { max-width: 26rem; }
@media (max-width: 44rem) { dl.next { grid-template-columns: 1fr; gap: .1rem; } dl.next dd { margin-bottom: .7rem; }
  .cases { grid-template-columns: 1fr; } svg text { font-size: 20px; } .share div { font-size: .72rem; }
  .scroll table { min-width: 0; font-size: .85rem; } td { overflow-wrap: anywhere; } }
footer { margin-top: 3rem; color: var(--soft); font-size: .9rem; }
@media print { body { background: #fff; } .card { break-inside: avoid; } }
"""
)


def scoped_style(name: str) -> str:
    """Return the style sheet for what is inside an element of a class, so that it changes nothing else of a page."""

    def scoped(match: re.Match[str]) -> str:
        selectors = match[1].strip()
        if selectors.startswith("@"):
            return match[0]
        inside = [
            f".{name}" if one in (":root", "body") else f".{name} {one}"
            for one in (selector.strip() for selector in selectors.split(","))
        ]
        return f"{', '.join(inside)} {{"

    return re.sub(r"([^{}]+)\{", scoped, STYLE)
