// Looser thresholds wait for one label lag: section "The wait of a looser threshold" of docs/audit-format.md.

import { parse, plain, sameJson } from "./json.mjs";
import { bar, budget } from "./rules.mjs";

const WAITED = /it has waited for one label lag since run (\d+)/;
const PLAIN = { kind: "indicator", parameters: {}, curve: null };

/** What a policy or a candidate cuts by. */
export function served({ state, threshold, rule = null }) {
  return { value: state === "full" ? NaN : bar({ state, threshold }), rule: rule === null ? PLAIN : typeof rule === "string" ? plain(parse(rule)) : rule };
}

const ownCuts = ({ rule }) =>
  new Map(
    rule.kind === "segments"
      ? Object.entries(rule.parameters.own).map(([name, { state, lambda }]) => [name, bar({ state, threshold: lambda })])
      : [],
  );

const shipsNothing = (one) => one.value === Infinity && [...ownCuts(one).values()].every((value) => value === Infinity);

/** Whether `after` may ship something that `before` holds; what cannot be compared may. */
export function isLooser(before, after) {
  if ((before.value === after.value && sameJson(before.rule, after.rule)) || shipsNothing(after)) return false;
  if (shipsNothing(before)) return true;
  const [old, fresh] = [before.rule, after.rule];
  if (old.kind === "full" || fresh.kind === "full") return false; // which ships more is told by prompts, not by a threshold
  if (old.kind === "transductive" && fresh.kind === "transductive") return !holdsMore(old, fresh);
  const comparable =
    sameJson(old, fresh) || (old.kind === fresh.kind && (old.kind === "quantile" || (old.kind === "segments" && old.parameters.key === fresh.parameters.key)));
  if (!comparable || after.value < before.value) return true;
  const [was, is] = [ownCuts(before), ownCuts(after)];
  return [...was.keys(), ...is.keys()].some((name) => (is.get(name) ?? after.value) < (was.get(name) ?? before.value));
}

function holdsMore(old, fresh) {
  const floor = ({ parameters }) => parameters.floor ?? -Infinity;
  if (old.parameters.labelled !== fresh.parameters.labelled || floor(fresh) < floor(old)) return false;
  return [...old.curve, ...fresh.curve].every(([level]) => room(fresh, level ?? -Infinity) <= room(old, level ?? -Infinity));
}

/** What a batch may lose at a level. */
function room({ parameters: { alpha, groups }, curve }, level) {
  const point = curve.findLast(([at]) => (at ?? -Infinity) <= level);
  return point === undefined ? -Infinity : Math.min(1, budget(alpha, groups) + 1 - point[1]);
}

/** Follows policies, runs and rejections in the order of the control log. */
export class Waits {
  #serves = new Map();
  #since = new Map(); // gate: when the latest of its policies came into force
  #held = new Map(); // gate: { run, until, finished } of the wait that runs

  policy(row) {
    this.#serves.set(row.gate, served(row));
    if (!(row.valid_from <= this.#since.get(row.gate))) this.#since.set(row.gate, row.valid_from);
  }

  rejection({ run }) {
    for (const [gate, held] of this.#held) if (held.run === run) this.#held.delete(gate);
  }

  /** What contradicts the wait that ran when a run began; null: nothing. */
  run(row, decides) {
    let held = this.#held.get(row.gate);
    this.#held.delete(row.gate);
    if (held?.finished < this.#since.get(row.gate)) held = undefined; // a policy has ended it
    if (row.requested_by !== "recalibrator") return null;
    const until = row.held_until ?? null;
    if (until !== null) {
      this.#held.set(row.gate, { run: row.id, until, finished: row.finished_at });
      if (row.outcome === "proposed" && until > row.started_at) return null;
      return `it is ${row.outcome} and waits until ${until}: only a proposal waits, and until later`;
    }
    const before = this.#serves.get(row.gate);
    if (row.outcome !== "applied" || before === undefined || decides === undefined) return null;
    const waited = WAITED.exec(row.why);
    if (waited !== null && held?.run !== Number(waited[1])) {
      return `it says that its threshold has waited since run ${waited[1]}, which began no wait that ran then`;
    }
    if (held !== undefined && row.started_at < held.until && isLooser(before, served(decides))) {
      return `a looser threshold came into force before ${held.until}, until when run ${held.run} has it wait`;
    }
    return null;
  }
}
