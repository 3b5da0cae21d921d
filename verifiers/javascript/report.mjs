// What was found: faults (something was changed), notes (something could not be checked), counts (what was).

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
    lines.push(this.faults.length ? `${this.faults.length} faults.` : "Everything fits.");
    return lines.join("\n");
  }
}
