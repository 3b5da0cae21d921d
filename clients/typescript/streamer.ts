/**
 * The client of `streamer serve`: one call decides, and whatever goes wrong holds within the deadline. It needs `fetch` alone.
 * docs/clients.md describes it; times are in seconds.
 */

export type TroubleReason =
  | "timed_out"
  | "connection_failed"
  | "overloaded"
  | "unavailable"
  | "refused"
  | "unreadable"
  | "mismatched"
  | "too_large"
  | "invalid_request"
  | "failed";

/** There is no decision to be had. */
export class Trouble extends Error {
  readonly reason: TroubleReason;
  /** One sentence for the log; what the service says of an error is quoted, at most 400 characters of it. */
  readonly detail: string;
  /** Of the HTTP answer, where there was one. */
  readonly status: number | undefined;
  /** The same request may succeed in a moment. */
  readonly passing: boolean;
  /** Seconds that the service asked to wait before. */
  readonly wait: number | undefined;

  constructor(
    reason: TroubleReason,
    detail: string,
    more: { status?: number; passing?: boolean; wait?: number | undefined; cause?: unknown } = {},
  ) {
    super(`${reason}: ${detail}`, { cause: more.cause });
    this.name = "Trouble";
    this.reason = reason;
    this.detail = detail;
    this.status = more.status;
    this.passing = more.passing ?? false;
    this.wait = more.wait;
  }
}

/** What a gate decided about one batch, or why nothing is known: then the action is `hold`. */
export interface Decision {
  readonly gate: string;
  readonly batchId: string;
  readonly attempt: number;
  readonly action: "ship" | "mixed" | "abstain" | "regenerate" | "escalate" | "hold";
  /** All that the gate's unit is about may be shown; never in shadow mode, nor where a claim is left out. */
  readonly ships: boolean;
  /** Of the event, or a `TroubleReason`. */
  readonly reason: string;
  /** False in shadow mode alone: do what you would do without a gate. */
  readonly enforced: boolean;
  /**
   * The one text that may be shown: of the answer that ships, of claims what is left of it, or what a person released (`desk`).
   * Null where nothing may be, and where the gate's unit selects none.
   */
  readonly text: string | null;
  /** Of the selected answer, in shadow mode too; null under the unit `claim`. */
  readonly responseId: string | null;
  /** Its place, from 0. */
  readonly index: number | null;
  /** Of that answer, in a hold the highest; in [0, 1]. */
  readonly score: number | null;
  /** What scores were compared with; null where the policy is closed or open. */
  readonly threshold: number | null;
  readonly policyVersion: number | null;
  /** One sentence about a trouble. */
  readonly detail: string;
  /** The whole event, where there is one. */
  readonly event: Readonly<Record<string, unknown>> | null;
  /** Where the decision is on record, a JSON array. Keep it, one a line: `streamer audit verify --receipts FILE` reads them. */
  readonly receipt: string | null;
  /** A person decides about the held batch until then: ask `Client.desk`. Null where nobody is waited for. */
  readonly deskUntil: Date | null;
  /** What a person made of the held batch, where the call waited for it. */
  readonly desk: DeskOutcome | null;
}

/** What became of a held batch at the desk, or why nothing is known: then the action is `hold`. */
export interface DeskOutcome {
  readonly gate: string;
  readonly batchId: string;
  readonly attempt: number;
  readonly action: "released" | "rejected" | "waiting" | "hold";
  /** Whether `text` may be shown; everything else holds. */
  readonly released: boolean;
  /** Whether it is worth while to ask again. */
  readonly waits: boolean;
  /** `person` or `deadline_passed`; a `TroubleReason`; empty while it waits. */
  readonly reason: string;
  /** What may be shown; null unless it was released, and once it was erased. */
  readonly text: string | null;
  readonly responseId: string | null;
  /** Whether a person changed the text. */
  readonly edited: boolean;
  readonly by: string | null;
  readonly remark: string;
  /** The deadline at the desk. */
  readonly until: Date | null;
  /** One sentence about a trouble. */
  readonly detail: string;
  /** The whole event; null while it waits, and where nothing is known. */
  readonly event: Readonly<Record<string, unknown>> | null;
}

/** Texts in order, whose ids are then "0", "1", ...; or ids and texts. */
export type Answers = readonly string[] | ReadonlyMap<string, string>;

export interface CallOptions {
  /** Seconds that the call may take in all; the client's own unless given. */
  readonly deadline?: number;
}

export interface AskOptions extends CallOptions {
  readonly attempt?: number;
  /** Throw `Trouble` in place of a hold without an event. */
  readonly throwOnTrouble?: boolean;
}

export interface DecideOptions extends AskOptions {
  /** Drawn where you name none: then only tries of this call repeat it. */
  readonly batchId?: string;
  /** Seconds, beyond the deadline, to wait for a person where the batch is held for one. */
  readonly desk?: number;
  /** One for each answer: numbers, or base64 of little-endian float32. */
  readonly embeddings?: readonly (ArrayLike<number> | string)[];
  readonly embeddingEncoder?: string;
  /** One for each answer, in [0, 1]. */
  readonly scores?: readonly number[];
  /** The mean log-probability of each answer's tokens, at most 0; null for a blank one. */
  readonly logprobs?: readonly (number | null)[];
  /** In their place those of each answer's tokens. */
  readonly tokenLogprobs?: readonly (ArrayLike<number> | null)[];
  /**
   * The tools that each answer calls, in the place of its text, which is then empty; null where it calls none. Which calls ship
   * says `Decision.index`.
   */
  readonly calls?: readonly (readonly { readonly name: string; readonly arguments: object | string }[] | null)[];
  /** The model that gave each answer; null where that is not said. */
  readonly models?: readonly (string | null)[];
  /** Claims of each answer, { id, text, span }, where a gate decides them; null: its sentences are. */
  readonly claims?: readonly (readonly object[] | null)[];
  /** Numbers of your own for each answer, by name: { retrieval: 0.82 }; null where one is not known. */
  readonly signals?: readonly (Readonly<Record<string, number | null>> | null)[];
  readonly references?: readonly string[];
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** The gate's decision deadline counts from it. */
  readonly createdAt?: Date;
}

export interface LabelOptions extends CallOptions {
  readonly labeller: string;
  readonly kind?: string;
  readonly attempt?: number;
  readonly labelledAt?: Date;
  readonly signature?: string;
  readonly keyId?: string;
  /** Of fields of an answer in JSON, by JSON Pointer. */
  readonly severities?: Readonly<Record<string, number>>;
}

export interface ClientOptions {
  /** An API key; none where the service asks for none, on the loopback. */
  readonly key?: string | undefined;
  /** Seconds that a call may take in all, unless the call says otherwise. */
  readonly deadline?: number;
  /** Permit http to another machine. */
  readonly insecure?: boolean;
}

const DEADLINE_SECONDS = 2;
const MAX_SECONDS = 2 ** 31 / 1000 - 1;
const MAX_ANSWER_BYTES = 4 * 2 ** 20;
/** Of the time that is left: a hold that the service answers in time is on record. */
const SHARE_FOR_THE_SERVICE = 0.9;
const LEAST_PAUSE = 0.05;
const MOST_PAUSE = 1;
const DESK_PAUSE = 0.5;
const OUTCOMES = ["released", "rejected", "waiting"] as const;
const ACTIONS = ["ship", "mixed", "abstain", "regenerate", "escalate"] as const;
const PASSING = [429, 502, 503, 504]; // 500 is on record, and would be again

type Json = Record<string, unknown>;
type Pairs = readonly (readonly [string, string])[];

export class Client {
  readonly #base: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #deadline: number;

  /** Throws for an address without http or https, and for http to another machine. */
  constructor(baseUrl: string, { key, deadline = DEADLINE_SECONDS, insecure = false }: ClientOptions = {}) {
    const url = new URL(baseUrl);
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TypeError("the service's address must begin with http:// or https://");
    }
    if (url.protocol === "http:" && !insecure && !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname)) {
      throw new TypeError(`http to ${url.hostname} shows texts and key to the network: use https, or insecure: true`);
    }
    this.#base = url.href.replace(/\/*$/, "/v1/gates");
    this.#deadline = deadline;
    this.#headers = {
      accept: "application/json, application/problem+json",
      "accept-encoding": "identity",
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    };
  }

  /** Ask for the decision about at least two answers to a prompt. Whatever goes wrong within the deadline is a hold. */
  async decide(gate: string, prompt: string, answers: Answers, options: DecideOptions = {}): Promise<Decision> {
    const batchId = options?.batchId ?? crypto.randomUUID();
    return await orHold(gate, batchId, options, async (asked) => {
      const end = now() + (options.desk ?? 0);
      const sent: Pairs =
        answers instanceof Map ? [...answers] : [...(answers as readonly string[])].map((text, i) => [String(i), text]);
      const event = responsesEvent(asked, prompt, sent, options);
      const answer = await this.#ask("POST", [gate, "decisions"], options, event, batchId);
      const decision = readDecision(answer, asked, sent);
      const waits = decision.deskUntil !== null && (decision.desk === null || decision.desk.waits);
      // A request waits five minutes at most, and less where many wait: the rest is asked for again.
      const left = end - now();
      if (options.desk === undefined || !waits || (left <= DESK_PAUSE && decision.desk !== null)) return decision;
      return withDesk(decision, await this.desk(gate, batchId, { attempt: asked.attempt, deadline: Math.max(left, DESK_PAUSE) }));
    });
  }

  /** Ask what is on record about a batch; a hold where that cannot be known. The service has no texts to return. */
  async decision(gate: string, batchId: string, options: AskOptions = {}): Promise<Decision> {
    return await orHold(gate, batchId, options, async (asked) => {
      const answer = await this.#ask("GET", [gate, "decisions", batchId], options, undefined, undefined, asked);
      return readDecision(answer, asked);
    });
  }

  /** Ask what became of a held batch at the desk, and wait for it until the deadline; hold unless it is `released`. */
  async desk(gate: string, batchId: string, options: AskOptions = {}): Promise<DeskOutcome> {
    let found: DeskOutcome | undefined;
    try {
      const { attempt = 1, deadline = this.#deadline } = options;
      const asked = { gate, batchId, attempt };
      const end = now() + deadline;
      for (let round = 0; ; round += 1) {
        // At first as it stands; then the service waits, less long than it is asked to, or not at all.
        const how = { deadline: end - now(), ...(round === 0 ? { mostWait: 0.001 } : {}) };
        const answer = await this.#ask("GET", [gate, "desk", batchId], how, undefined, undefined, asked);
        found = readOutcome(answer, asked);
        if (!found.waits || end - now() <= DESK_PAUSE) break;
        if (round > 0) await new Promise((resolve) => setTimeout(resolve, DESK_PAUSE * 1000));
      }
    } catch (error) {
      if (found === undefined || !(error instanceof Trouble)) {
        const { attempt, reason, detail } = await orHold(gate, batchId, options, () => Promise.reject(error));
        return { ...NOTHING_AT_DESK, gate, batchId, attempt, action: "hold", reason, detail };
      }
    }
    return found;
  }

  /** Ask for the policy in force, its promise and the verdict on it. Throws `Trouble`. */
  async gate(gate: string, options: CallOptions = {}): Promise<Json> {
    return readObject((await this.#ask("GET", [gate], options)).content);
  }

  /** Send the severity of one answer, in [0, 1]: 0 is fine, 1 is worst. Throws `Trouble` unless it is taken. */
  async label(
    gate: string,
    batchId: string,
    responseId: string,
    severity: number,
    options: LabelOptions,
  ): Promise<void> {
    const { labeller, kind = "human", attempt = 1, labelledAt = new Date(), signature, keyId, severities } = options;
    await this.#ask("POST", [gate, "labels"], options, {
      schema: "streamer.labels.v1",
      gate,
      batch_id: batchId,
      attempt,
      response_id: responseId,
      severity,
      kind,
      labeller,
      labelled_at: labelledAt,
      signature,
      key_id: keyId,
      severities,
    });
  }

  /** Ask until there is an answer, a trouble that stays, or no time left. */
  async #ask(
    method: string,
    path: readonly string[],
    { deadline = this.#deadline, mostWait = Infinity, desk }: CallOptions & { readonly mostWait?: number; readonly desk?: number },
    event?: Json,
    key?: string,
    { attempt } = { attempt: 1 },
  ): Promise<Answer> {
    if (!(deadline > 0 && deadline < MAX_SECONDS)) {
      throw new Trouble("invalid_request", "the deadline must be a positive number of seconds");
    }
    if (desk !== undefined && !(desk > 0 && deadline + desk < MAX_SECONDS)) {
      throw new Trouble("invalid_request", "the desk must be a positive number of seconds");
    }
    const url = [this.#base, ...path.map(encodeURIComponent)].join("/") + (attempt === 1 ? "" : `?attempt=${attempt}`);
    const decided = now() + deadline;
    const end = decided + (desk ?? 0);
    const expiry = new AbortController();
    const timer = setTimeout(() => expiry.abort(), (end - now()) * 1000);
    let before = "";
    try {
      for (let tries = 0; ; tries += 1) {
        const wait = Math.min(Math.max((decided - now()) * SHARE_FOR_THE_SERVICE, 0.001), mostWait);
        const margin = deadline * (1 - SHARE_FOR_THE_SERVICE);
        const atDesk = desk === undefined ? undefined : Math.max(Math.min(desk, end - now() - wait - margin), 0.001);
        try {
          return await answerTo(url, {
            method,
            headers: {
              ...this.#headers,
              prefer: `wait=${wait.toFixed(3)}${atDesk === undefined ? "" : `, desk=${atDesk.toFixed(3)}`}`,
              ...(event === undefined ? {} : { "content-type": "application/json" }),
              ...(key !== undefined && /^[!#-~]+$/.test(key) ? { "idempotency-key": key } : {}),
            },
            ...(event === undefined ? {} : { body: encoded(event) }),
            redirect: "manual",
            signal: expiry.signal,
          });
        } catch (error) {
          if (expiry.signal.aborted) {
            throw new Trouble("timed_out", `no answer within ${deadline + (desk ?? 0)} s${before}`, { cause: error });
          }
          if (!(error instanceof Trouble) || !error.passing) throw error;
          const pause = Math.max(pauseBefore(tries), error.wait ?? 0);
          if (now() + pause >= end) throw error;
          before = `; before that ${error.detail}`;
          await new Promise((resolve) => setTimeout(resolve, pause * 1000));
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }
}

/** A body, and the receipt of the decision that it tells of. */
interface Answer {
  readonly content: Uint8Array;
  readonly receipt: string | null;
}

interface Identity {
  readonly gate: string;
  readonly batchId: string;
  readonly attempt: number;
}

/** Turn whatever goes wrong into a hold, or into a `Trouble` where that is wanted. */
async function orHold(
  gate: string,
  batchId: string,
  options: AskOptions,
  ask: (asked: Identity) => Promise<Decision>,
): Promise<Decision> {
  const asked = { gate, batchId, attempt: options?.attempt ?? 1 }; // JavaScript may pass null
  try {
    return await ask(asked);
  } catch (error) {
    const reason = error instanceof TypeError ? "invalid_request" : "failed";
    const trouble = error instanceof Trouble ? error : new Trouble(reason, String(error).slice(0, 200), { cause: error });
    if (options?.throwOnTrouble) throw trouble;
    return {
      ...asked,
      action: "hold",
      ships: false,
      reason: trouble.reason,
      enforced: true,
      text: null,
      responseId: null,
      index: null,
      score: null,
      threshold: null,
      policyVersion: null,
      detail: trouble.detail,
      event: null,
      receipt: null,
      deskUntil: null,
      desk: null,
    };
  }
}

const NOTHING_AT_DESK = {
  released: false,
  waits: false,
  reason: "",
  text: null,
  responseId: null,
  edited: false,
  by: null,
  remark: "",
  until: null,
  detail: "",
  event: null,
};

function responsesEvent(asked: Identity, prompt: string, answers: Pairs, options: DecideOptions): Json {
  const { embeddings, scores, logprobs, tokenLogprobs, calls, models, signals, claims } = options;
  for (const values of [embeddings, scores, logprobs, tokenLogprobs, calls, models, signals, claims]) {
    if (values !== undefined && values.length !== answers.length) {
      throw new Trouble("invalid_request", `there are ${answers.length} answers and ${values.length} values for them`);
    }
  }
  return {
    schema: "streamer.responses.v1",
    gate: asked.gate,
    batch_id: asked.batchId,
    attempt: asked.attempt,
    prompt,
    responses: answers.map(([id, text], i) => {
      const embedding = embeddings?.[i];
      const tokens = tokenLogprobs?.[i];
      return {
        id,
        text: calls?.[i] && text === "" ? undefined : text,
        embedding: embedding === undefined || typeof embedding === "string" ? embedding : Array.from(embedding),
        score: scores?.[i],
        logprob: logprobs?.[i] ?? undefined,
        token_logprobs: tokens ? Array.from(tokens) : undefined,
        calls: calls?.[i] ?? undefined,
        model: models?.[i] ?? undefined,
        claims: claims?.[i] ?? undefined,
        signals: signals?.[i] ? Object.fromEntries(Object.entries(signals[i]).filter(([, one]) => one !== null)) : undefined,
      };
    }),
    embedding_encoder: options.embeddingEncoder,
    references: options.references,
    metadata: options.metadata,
    created_at: options.createdAt,
  };
}

function encoded(event: Json): string {
  try {
    return JSON.stringify(event);
  } catch (error) {
    throw new Trouble("invalid_request", `the arguments make no event: ${String(error).slice(0, 200)}`, { cause: error });
  }
}

/** Send one request and read all of its answer. */
async function answerTo(url: string, request: RequestInit): Promise<Answer> {
  let response: Response;
  let content: Uint8Array;
  try {
    response = await fetch(url, request);
    content = await contentOf(response);
  } catch (error) {
    if (error instanceof Trouble) throw error;
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
    throw new Trouble("connection_failed", String(cause).slice(0, 200), { passing: true, cause: error });
  }
  const { status, headers } = response;
  if (!response.ok) {
    const reason = status === 429 ? "overloaded" : status >= 500 ? "unavailable" : "refused";
    throw new Trouble(reason, `status ${status}${problemIn(content)}`, {
      status,
      passing: PASSING.includes(status),
      wait: retryAfter(headers.get("retry-after")),
    });
  }
  const kind = (headers.get("content-type") ?? "").split(";")[0]!.trim().toLowerCase();
  if (content.length > 0 && (kind !== "application/json" || (headers.get("content-encoding") ?? "identity") !== "identity")) {
    throw new Trouble("unreadable", `the answer is ${kind || "of no type"}, not plain application/json`);
  }
  return { content, receipt: headers.get("streamer-receipt") };
}

async function contentOf(response: Response): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  while (reader !== undefined) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.length;
    if (length > MAX_ANSWER_BYTES) {
      await reader.cancel().catch(() => undefined);
      throw new Trouble("too_large", `the answer has more than ${MAX_ANSWER_BYTES} bytes`);
    }
  }
  const content = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    content.set(chunk, at);
    at += chunk.length;
  }
  return content;
}

function readObject(content: Uint8Array): Json {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content));
  } catch (error) {
    throw new Trouble("unreadable", "the answer is no JSON", { cause: error });
  }
  if (!isObject(value)) throw new Trouble("unreadable", "the answer is no JSON object");
  return value;
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

interface ScoredResponse {
  readonly id: string;
  readonly score: number | null;
  readonly action: string;
}

function isScoredResponse(value: unknown): value is ScoredResponse {
  return (
    isObject(value) && typeof value.id === "string" && typeof value.action === "string" && isNumberOrNull(value.score)
  );
}

function isNumberOrNull(value: unknown): value is number | null {
  return value === null || typeof value === "number";
}

/** Read the service's answer about one batch: anything that is not a clear ship is no ship. */
function readDecision(answer: Answer, asked: Identity, answers?: Pairs): Decision {
  const { desk: atDesk = null, text = null, ...event } = readObject(answer.content); // these are no part of the action on record
  const { responses, policy, selected, reason, enforced, unit, action: named } = event;
  const action = ACTIONS.find((one) => one === named);
  if (
    event.schema !== "streamer.actions.v1" ||
    action === undefined ||
    !["best", "response", "batch", "claim"].includes(unit as string) ||
    typeof event.gate !== "string" ||
    typeof event.batch_id !== "string" ||
    !Number.isInteger(event.attempt) ||
    typeof enforced !== "boolean" ||
    typeof reason !== "string" ||
    !(selected === null || typeof selected === "string") ||
    !Array.isArray(responses) ||
    !responses.every(isScoredResponse) ||
    !isObject(policy) ||
    !Number.isInteger(policy.version) ||
    !isNumberOrNull(policy.lambda)
  ) {
    throw new Trouble("unreadable", "the answer is no action event");
  }
  const ids = responses.map((one) => one.id);
  const { gate, batchId, attempt } = asked;
  if (event.gate !== gate || event.batch_id !== batchId || event.attempt !== attempt) {
    throw new Trouble("mismatched", "the answer is about another gate, batch or attempt");
  }
  const order = answers?.map(([id]) => id) ?? ids;
  const whole = typeof event.answer === "string" ? event.answer : null; // whose claims stand in the place of responses
  const own = JSON.stringify([...order].sort()) === JSON.stringify([...ids].sort());
  if (whole === null ? !own : answers !== undefined && !order.includes(whole)) {
    throw new Trouble("mismatched", "the answer is about other answers");
  }
  const shipped = responses.filter((one) => one.action === "ship");
  const clear =
    unit === "best"
      ? shipped.length === 1 && shipped[0]!.id === selected
      : selected === null && shipped.length === ids.length && ids.length > 0;
  if (action === "ship" ? !(clear && reason === "scored") : selected !== null) {
    throw new Trouble("unreadable", "the answer contradicts itself");
  }
  const known = responses.filter((one) => selected === null || one.id === selected).map((one) => one.score);
  const scores = known.filter((one) => one !== null);
  const said = whole === null ? answers?.find(([id]) => id === selected)?.[1] : text;
  const decision: Decision = {
    ...asked,
    action,
    ships: action === "ship" && enforced,
    reason,
    enforced,
    text: enforced && (action === "ship" || action === "mixed") && typeof said === "string" ? said : null,
    responseId: selected,
    index: selected === null || !order.includes(selected) ? null : order.indexOf(selected),
    score: scores.length === 0 ? null : Math.max(...scores),
    threshold: policy.lambda,
    policyVersion: policy.version as number,
    detail: "",
    event,
    receipt: answer.receipt,
    deskUntil: moment(event.desk_until ?? null),
    desk: null,
  };
  return decision.deskUntil === null || atDesk === null ? decision : withDesk(decision, outcomeOf(atDesk, asked));
}

/** Add what a person made of a held batch: what was released may be shown. */
function withDesk(decision: Decision, desk: DeskOutcome): Decision {
  return { ...decision, desk, text: desk.released ? desk.text : decision.text };
}

/** Read the service's answer about a batch at the desk: anything that is not clearly released is not. */
function readOutcome(answer: Answer, asked: Identity): DeskOutcome {
  return outcomeOf(readObject(answer.content), asked);
}

function outcomeOf(event: unknown, asked: Identity): DeskOutcome {
  if (!isObject(event)) throw new Trouble("unreadable", "the answer is no event of the desk");
  const { schema, reason = "", selected = null, text = null, edited = false, by = null, remark = "" } = event;
  const action = OUTCOMES.find((one) => one === event.action);
  const texts: unknown[] = [selected, text, by];
  if (
    schema !== "streamer.desk.v1" ||
    action === undefined ||
    typeof reason !== "string" ||
    typeof remark !== "string" ||
    typeof edited !== "boolean" ||
    !texts.every((one) => one === null || typeof one === "string")
  ) {
    throw new Trouble("unreadable", "the answer is no event of the desk");
  }
  const { gate, batchId, attempt } = asked;
  if (event.gate !== gate || event.batch_id !== batchId || event.attempt !== attempt) {
    throw new Trouble("mismatched", "the answer is about another gate, batch or attempt");
  }
  if ((action === "released") !== (selected !== null) || (text !== null && selected === null)) {
    throw new Trouble("unreadable", "the answer contradicts itself");
  }
  return {
    ...asked,
    action,
    released: action === "released" && text !== null,
    waits: action === "waiting",
    reason,
    text: text as string | null,
    responseId: selected as string | null,
    edited,
    by: by as string | null,
    remark,
    until: moment(event.until),
    detail: "",
    event: action === "waiting" ? null : event,
  };
}

/** A moment of an event; null where there is none. */
function moment(value: unknown): Date | null {
  if (value === null) return null;
  const found = new Date(typeof value === "string" ? value : NaN);
  if (Number.isNaN(found.getTime())) throw new Trouble("unreadable", "the answer has a moment that cannot be read");
  return found;
}

/** What a problem document says of itself, bounded; nothing where there is none. */
function problemIn(content: Uint8Array): string {
  let problem: Json;
  try {
    problem = readObject(content);
  } catch {
    return "";
  }
  const said = [problem.code, problem.detail].filter(Boolean).map((one) => String(one).slice(0, 200));
  return said.length === 0 ? "" : ` ${said.join(": ")}`;
}

/** Seconds before the next try, half of them by chance, so that clients do not come back together. */
function pauseBefore(tries: number): number {
  return Math.min(LEAST_PAUSE * 2 ** tries, MOST_PAUSE) * (0.5 + Math.random() / 2);
}

/** Seconds to wait, of either form of the header. */
function retryAfter(text: string | null): number | undefined {
  if (text === null) return undefined;
  if (/^\d{1,9}(\.\d{1,9})?$/.test(text.trim())) return Number(text);
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? undefined : Math.max((moment - Date.now()) / 1000, 0);
}

function now(): number {
  return performance.now() / 1000;
}
