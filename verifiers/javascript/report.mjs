// What was found: faults (something was changed), notes (something could not be checked), counts (what was).

/** Escape what could steer a terminal, or hide or reverse text: names in a record come from others. */
export function printable(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}

export class Report {
  faults = [];
  notes = new Map();
  counts = new Map();

  fault(check, place, detail) {
    this.faults.push({ check, place, detail });
  }

  /** Say once what was not checked. */
  note(key, text) {
    if (!this.notes.has(key)) this.notes.set(key, text);
  }

  count(what, by = 1) {
    this.counts.set(what, (this.counts.get(what) ?? 0) + by);
  }

  asJson() {
    return JSON.stringify({
      faults: this.faults,
      notes: [...this.notes.values()],
      counts: Object.fromEntries(this.counts),
    });
  }

  asText() {
    const lines = this.faults.map(({ check, place, detail }) => `FAULT  ${check}: ${place}: ${detail}`);
    lines.push(...[...this.notes.values()].map((text) => `not checked   ${text}`));
    lines.push(...[...this.counts].sort().map(([what, count]) => `${String(count).padStart(12)}  ${what}`));
    lines.push(this.faults.length ? "Something does not fit." : "Everything fits.");
    return lines.map(printable).join("\n");
  }
}
