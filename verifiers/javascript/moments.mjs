// Times with microseconds, which Date does not have.

const MOMENT = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})(\+00:00|Z)$/;

/** Microseconds since 1970 of a time as the record writes it, as BigInt. Throws for anything else. */
export function micros(text) {
  const found = MOMENT.exec(text);
  if (found === null) throw new TypeError(`${JSON.stringify(text)} is no time`);
  return BigInt(Date.parse(`${found[1]}Z`)) * 1000n + BigInt(found[2]);
}

/** Seconds from one time to another. */
export const secondsBetween = (from, to) => Number(micros(to) - micros(from)) / 1e6;

/** A time of an event, which leaves out digits that are zero, as the record writes it; null for anything else. */
export function sixDigits(text) {
  const found = typeof text === "string" && /^([0-9T:-]{19})(?:\.([0-9]{1,6}))?(?:Z|\+00:00)$/.exec(text);
  return found && !Number.isNaN(Date.parse(`${found[1]}Z`)) ? `${found[1]}.${(found[2] ?? "").padEnd(6, "0")}Z` : null;
}
