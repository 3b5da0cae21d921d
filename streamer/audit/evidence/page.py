"""A report as one self-contained HTML page: no script, nothing from elsewhere, light and dark, and good to print."""

from collections.abc import Iterator, Mapping
from html import escape

from streamer.audit.evidence.document import Document, Shown, ShownClause
from streamer.audit.evidence.figures import EvidenceTable
from streamer.web.plot import COLOURS

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 190, 52, 26, 22

SHARE_COLOURS = {"ship": "#1f6fb2", "mixed": "#8a4fa8"}
HELD = "#d1a070"
"""Outcomes that ship something have a colour each, and all that hold another: readable on white and on a dark page."""


def bars(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return an SVG picture that needs no style sheet but for the colour of its text, which is the page's."""
    names = sorted(
        {name for one in counts.values() for name in one}, key=lambda name: (name not in SHARE_COLOURS, name)
    )
    most = max((sum(one.values()) for one in counts.values()), default=0)
    if not most:
        return ""
    step = (WIDTH - LEFT) / len(counts)
    parts = [_text(LEFT - 6, TOP + 5, f"{most:,}", "end"), _text(LEFT - 6, HEIGHT - BOTTOM, "0", "end")]
    every = -(-len(counts) // 8)
    for at, (day, one) in enumerate(counts.items()):
        x, y = LEFT + at * step, float(HEIGHT - BOTTOM)
        for name in names:
            height = (HEIGHT - BOTTOM - TOP) * one.get(name, 0) / most
            y -= height
            if height:
                parts.append(
                    f'<rect x="{x + 0.06 * step:.1f}" y="{y:.1f}" width="{0.88 * min(step, 90):.1f}" height="{height:.1f}"'
                    f' fill="{SHARE_COLOURS.get(name, HELD)}"><title>{escape(day)}: {one[name]:,} {escape(name)}</title></rect>'
                )
        if at % every == 0:
            parts.append(_text(x, HEIGHT - 8, day, "start"))
    x = float(LEFT)
    for name in names:
        parts.append(
            f'<rect x="{x:.0f}" y="2" width="10" height="10" fill="{SHARE_COLOURS.get(name, HELD)}"/>'
        )
        parts.append(_text(x + 14, 11, name, "start"))
        x += 34 + 8 * len(name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="Decisions over time, stacked by outcome">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12">{escape(words)}</text>'


STYLE = (
    COLOURS
    + """* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.2rem 1.4rem 4rem; }
h1 { font-size: clamp(1.5rem, 3.4vw, 2rem); line-height: 1.25; margin: 0 0 .6rem; text-wrap: balance; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .6rem; }
h3 { font-size: 1.05rem; margin: 0 0 .3rem; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
.lead { font-size: 1.1rem; font-weight: 600; margin: 0 0 .5rem; }
.soft, figcaption, .seal { color: var(--soft); }
.seal { font-size: .86rem; margin: .5rem 0 0; overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1rem 1.1rem; margin: 0 0 1rem; }
.asks { margin: 0 0 .6rem; }
.two { display: grid; grid-template-columns: 3fr 2fr; gap: .2rem 1.6rem; }
.two h4 { font-size: .86rem; font-weight: 650; color: var(--soft); margin: .2rem 0; }
.two ul { margin: 0; padding-left: 1.1rem; } .two li { margin: 0 0 .35rem; }
.not { border-left: 3px solid var(--wrong); padding-left: .9rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.1rem; margin: .8rem 0 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; margin: .7rem 0 0; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-top: 1px solid var(--rule); overflow-wrap: anywhere;
  min-width: 6.6rem; }
thead th { border-top: 0; color: var(--soft); font-weight: 600; } th.n, td.n { min-width: 3.5rem; text-align: right; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: auto; margin: .6rem 0 0; } svg text { fill: var(--soft); font-family: inherit; }
code { background: var(--code); border-radius: 4px; padding: .08rem .3rem; font-size: .9em; overflow-wrap: anywhere; }
a { color: var(--fine); text-decoration: none; } a:hover { text-decoration: underline; }
footer { margin-top: 3rem; color: var(--soft); font-size: .9rem; }
@media (max-width: 44rem) { .two { grid-template-columns: 1fr; } dl { grid-template-columns: 1fr; gap: 0 0; } dd { margin-bottom: .5rem; } }
@media print { :root { --page: #fff; --card: #fff; --ink: #1d2329; --soft: #59636e; --rule: #dfe2e6; --code: #f0efea;
  --fine: #1f6fb2; --wrong: #d1570f; } body { font-size: 12px; } main { max-width: none; padding: 0; }
  .card { break-inside: avoid; } .long { break-inside: auto; } h2, h3 { break-after: avoid; } a { color: inherit; } }
"""
)


def page_of(document: Document) -> str:
    """Return the page."""
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(document.title)}</title><style>{STYLE}</style></head><body><main>",
            f'<header><h1>{escape(document.title)}</h1><p class="lead">{escape(document.lead)}</p>',
            f'<p class="lead">{escape(document.draws)}</p>',
            f'<p class="soft">{escape(document.warning)}</p><dl>',
            *(f"<dt>{escape(one)}</dt><dd>{escape(said)}</dd>" for one, said in document.facts),
            "</dl></header><h2>The gates at a glance</h2>",
            _table(document.gates, "The gates at a glance"),
            "<h2>The clauses at a glance</h2>",
            _table(document.glance, "The clauses at a glance"),
            "<h2>Check it yourself</h2><p>Every figure follows from the bundle that lies beside this page. One file of"
            " Python derives each again and names any that differs:</p>",
            *(f"<p><code>{escape(one)}</code></p>" for one in document.how),
            f'<p class="soft">{escape(document.where)}</p>',
            "<h2>Clauses</h2>",
            *(_clause(one) for one in document.clauses),
            "<h2>What no figure here shows</h2><ul>",
            *(f"<li>{escape(one)}</li>" for one in document.never),
            "</ul>",
            *(_unchecked(document)),
            "<h2>The figures</h2>",
            *(_figure(one) for one in document.figures),
            f"<footer>{escape(document.footer)}</footer></main></body></html>\n",
        )
    )


def _unchecked(document: Document) -> Iterator[str]:
    yield "<h2>What the verification could not check</h2><ul>"
    yield from (f"<li>{escape(one)}</li>" for one in document.unchecked)
    yield "</ul>" if document.unchecked else "<li>Nothing that is in the bundle.</li></ul>"


def _clause(clause: ShownClause) -> str:
    shows = "".join(_line(numbers, said) for numbers, said in clause.shows)
    lacks = "".join(f"<li>{escape(one)}</li>" for one in clause.does_not_show)
    return (
        f'<section class="card"><h3>{escape(clause.number)}: {escape(clause.title)}</h3>'
        f'<p class="asks soft">{escape(clause.asks)}</p><div class="two"><div><h4>The record shows</h4><ul>{shows}</ul></div>'
        f'<div class="not"><h4>It does not show</h4><ul>{lacks}</ul></div></div></section>'
    )


def _line(numbers: tuple[str, ...], said: str) -> str:
    links = "–".join(f'<a href="#{number}">{number}</a>' for number in numbers)
    return f"<li>{escape(said)} [{links}]</li>"


def _figure(figure: Shown) -> str:
    long = " long" if any(len(one.rows) > 12 for one in figure.tables) else ""
    return (
        f'<section class="card{long}" id="{figure.number}"><h3>{figure.number}&ensp;{escape(figure.title)}</h3>'
        f"<p>{escape(figure.sentence)}.</p>{bars(figure.counts)}{''.join(_table(one, figure.title) for one in figure.tables)}"
        f'<p class="seal">Derived from {escape(figure.derived)}.<br>{escape(figure.seal)}.</p></section>'
    )


def _table(table: EvidenceTable, title: str) -> str:
    first, number = len(table.heads) - table.numbers, ' class="n"'

    def cells(row: tuple[str, ...], tag: str) -> str:
        return "".join(
            f"<{tag}{number if at >= first else ''}>{escape(one)}</{tag}>" for at, one in enumerate(row)
        )

    rest = f'<p class="soft">{table.left_out} older rows are in report.json.</p>' if table.left_out else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}: {escape(table.heads[0])}"><table><thead><tr>{cells(table.heads, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{rest}"
    )
