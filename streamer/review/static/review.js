// The review page. What a person gives is kept in this browser until the server has said that it is stored.

const $ = (id) => document.getElementById(id);
const STORE = "streamer-review:";
const SHORTEST_LOOK = 250; // ms: a key that was meant for the last answer must not mark the next one unseen
const WORDS = new Map([[0, "fine"], [0.5, "half"], [1, "worst"]]);
const MEANS = new Map([...WORDS.values()].map((word) => [word, document.getElementById(`${word}-means`).textContent]));

let item = null; // what is shown: an item of the server, with `since` (when it appeared)
let last = null; // what was marked last: { item, severity }
let name = null;
let key = ""; // of the session that this page is in: with another tab's cookie it opens nothing
let busy = false; // a key acts when the one before it has acted
let away = false; // the person has left
let holdSeconds = 600;
let lastInput = 0;
let lastRenewal = 0;
let poll = 0;
let refusals = []; // sentences: gates that would not read this person's labels, and are left out

// -- what this browser keeps

const memory = new Map(); // where the browser keeps nothing, at least for as long as the page is open

function load(key, missing, store = localStorage) {
  let text = null;
  try {
    text = store.getItem(STORE + key);
  } catch {
    // `memory` may have it.
  }
  text ??= memory.get(key) ?? null;
  return text === null ? missing : JSON.parse(text);
}

function keep(key, value, store = localStorage) {
  try {
    store.setItem(STORE + key, JSON.stringify(value));
  } catch {
    memory.set(key, JSON.stringify(value));
  }
}

function forget(key) {
  memory.delete(key);
  try {
    localStorage.removeItem(STORE + key);
  } catch {
    // It was in `memory` alone.
  }
}

function keysThatBegin(start) {
  const keys = new Set([...memory.keys()].filter((key) => key.startsWith(start)));
  try {
    for (const key of Object.keys(localStorage)) {
      if (key.startsWith(STORE + start)) keys.add(key.slice(STORE.length));
    }
  } catch {
    // `memory` has them all.
  }
  return [...keys];
}

function randomName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

let holder = load("holder", null, sessionStorage);
if (holder === null) keep("holder", (holder = randomName()), sessionStorage);

/** Run `work` while no other tab of this browser sends. */
function alone(work) {
  return navigator.locks ? navigator.locks.request(STORE + "sending", work) : work();
}

// -- the server

class Trouble extends Error {
  /** `code`: a word of the server's, or `unreachable`. */
  constructor(code, detail = "") {
    super(detail || code);
    this.code = code;
  }
}

async function ask(path, message = {}, wait = 20000) {
  let response, answer;
  try {
    response = await fetch("api/" + path, {
      method: "POST",
      headers: { "content-type": "application/json", "x-review-key": key },
      body: JSON.stringify(message),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(wait),
    });
    answer = await response.json();
  } catch {
    throw new Trouble("unreachable");
  }
  if (!response.ok) throw new Trouble(answer.error ?? "unreachable", answer.detail);
  return answer;
}

// -- showing

// Characters that are not seen, or that change how their neighbours are seen: shown as their number. U+200C and U+200D
// are left: Persian, Indic scripts and emoji are written with them.
const ODD = /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180E\u200B\u200E\u200F\u202A-\u202E\u2060-\u206F\u3164\uFE00-\uFE0E\uFEFF\uFFA0\uFFF9-\uFFFB\u{E0000}-\u{E0FFF}\p{Noncharacter_Code_Point}]|\r(?!\n)/gu;
const FENCED = /^[ \t]*```[\s\S]*?(?:^[ \t]*```[ \t]*$|(?![\s\S]))/gm;

function span(className, ...children) {
  const made = document.createElement("span");
  made.className = className;
  made.append(...children);
  return made;
}

/** Cut `text` where `pattern` matches: what lies between goes through `between`, matches through `matched`. */
function cut(text, pattern, between, matched) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > from) parts.push(between(text.slice(from, match.index)));
    parts.push(matched(match[0]));
    from = match.index + match[0].length;
  }
  if (from < text.length) parts.push(between(text.slice(from)));
  return parts;
}

const codePoint = (odd) => span("odd", "U+" + odd.codePointAt(0).toString(16).toUpperCase().padStart(4, "0"));
const plainly = (text) => cut(text, ODD, (piece) => piece, codePoint);

/** Put `text` into `place` as text, with odd characters made visible. Nothing in it is ever read as HTML. */
function write(place, text) {
  const lines = text.replaceAll("\r\n", "\n").replace(/[\u2028\u2029\u0085]/g, "\n");
  // Fenced code in a fixed width; every sign of it stays, the fences too.
  const parts = cut(lines, FENCED, plainly, (code) => span("code", ...plainly(code))).flat();
  if (lines.trim() === "") parts.push(span("nothing", lines === "" ? "(empty)" : "(only white space)"));
  place.replaceChildren(...parts);
}

function list(place, texts) {
  place.replaceChildren(
    ...texts.map((text) => {
      const entry = document.createElement("li");
      entry.className = "text";
      entry.dir = "auto";
      write(entry, text);
      return entry;
    }),
  );
}

/** Each field can be marked as wrong. */
function showFields() {
  item.wrong = new Set(item.wrong);
  list($("judged-list"), item.judged.map(([path, said]) => `${path} ${said}`.trim()));
  item.judged.forEach(([path, , disputed], place) => {
    const entry = $("judged-list").children[place];
    if (disputed) entry.append(" others differ");
    if (path === "" || path.length > 200) return;
    const button = document.createElement("button");
    const press = () => (button.ariaPressed = button.classList.toggle("worst", item.wrong.has(path)));
    const onclick = () => press(item.wrong.delete(path) || item.wrong.add(path));
    Object.assign(button, { type: "button", textContent: "Wrong", ariaLabel: `${path} is wrong`, onclick });
    press();
    entry.append(" ", button);
  });
  $("judged").hidden = item.judged.length === 0;
}

function show(section) {
  for (const id of ["locked", "enter", "empty", "item"]) $(id).hidden = id !== section;
  $("bar").hidden = section !== "item" && !(section === "empty" && last !== null && !away);
  for (const id of ["fine", "half", "worst", "exact", "skip", "show-others"]) $(id).disabled = section !== "item";
  $("person").hidden = name === null || section === "enter" || section === "locked";
}

function say(text) {
  $("live").textContent = text;
}

function notice(text) {
  if ($("notice").textContent !== text) $("notice").textContent = text;
  $("notice").hidden = text === "";
}

const number = (value) => (value === 0.5 ? "½" : String(value));
const inWords = (severity) => (WORDS.has(severity) ? `${WORDS.get(severity)}, ${number(severity)}` : number(severity));
const counted = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

function showItem(next, { focus = true } = {}) {
  if (item?.token !== next.token) $("remark").value = ""; // it was about another answer
  item = next;
  item.since = performance.now();
  lastRenewal = Date.now();
  show("item");
  write($("prompt"), item.prompt);
  write($("answer"), item.text);
  const parts = item.claim.map((part, at) => {
    const made = span(at === 1 ? "claim" : "");
    if (part) write(made, part);
    return made;
  });
  if (parts.length) $("answer").replaceChildren(...parts);
  $("answer-title").textContent = `How bad is ${item.claim.length ? "the marked claim" : "this answer"}?`;
  showFields();
  write($("came-text"), item.came ?? "");
  $("came").hidden = item.came === null;
  for (const [word, means] of MEANS) $(`${word}-means`).textContent = item.rubric?.[word] || (item.claim.length ? means.split(";")[0] : means);
  list($("references-list"), item.references);
  $("references").hidden = item.references.length === 0;
  hideOthers();
  $("show-others").disabled = item.others === 0;
  $("exact").value = "";
  wrongNumber("");
  const again = item.severity !== null;
  for (const [severity, word] of WORDS) $(word).classList.toggle("given", again && item.severity === severity);
  $("skip-word").textContent = again ? "Keep it" : "Skip";
  about(again);
  if (!focus) return;
  window.scrollTo(0, 0);
  $("prompt-title").focus({ preventScroll: true });
  document.querySelector(".claim")?.scrollIntoView({ block: "center" });
}

function about(again) {
  const gate = document.createElement("strong");
  gate.textContent = item.gate;
  const parts = ["Gate ", gate];
  if (again) parts.push(`. You gave ${inWords(item.severity)}. It stands until you give another, also if you leave now.`);
  else if (item.skipped) parts.push(". You skipped this one before, and nothing else waits for you.");
  if (item.until_wrong) parts.push(again || item.skipped ? " " : ". ", "Stop at the first wrong one: no more claims of this answer are asked for once you give 1.");
  $("about").replaceChildren(...parts);
}

function hideOthers() {
  $("others").hidden = true;
  $("others-list").replaceChildren();
  $("show-others").setAttribute("aria-expanded", "false");
}

function wrongNumber(text) {
  $("exact-wrong").textContent = text;
  $("exact").setAttribute("aria-invalid", String(text !== ""));
}

/** Tell what the gate had decided: only after a severity was stored does the page know it. */
function tell(marked, decided) {
  const did = decided.action === "ship" ? "shipped" : "held";
  const gate = decided.enforced ? `had ${did} it` : `would have ${did} it`;
  const facts = [];
  if (decided.action !== "ship" && decided.reason !== "scored") facts.push(decided.reason.replaceAll("_", " "));
  if (decided.score !== null) {
    const cut = decided.threshold === null ? "" : `, needed above ${decided.threshold.toFixed(3)}`;
    facts.push(`score ${decided.score.toFixed(3)}${cut}`);
  }
  const strong = document.createElement("strong");
  strong.textContent = `You: ${inWords(marked.severity)}.`;
  const rest = ` The gate ${gate}${facts.length ? ` (${facts.join("; ")})` : ""}.`;
  $("last").replaceChildren(strong, rest);
  return strong.textContent + rest;
}

async function progress() {
  let answer;
  try {
    answer = await ask("progress", { holder });
  } catch {
    return;
  }
  refusals = answer.refusals;
  const gates = answer.progress.gates;
  const sum = (field) => gates.reduce((total, gate) => total + gate[field], 0);
  const parts = [`${sum("waiting").toLocaleString("en")} waiting`, `${answer.progress.done.toLocaleString("en")} done today`];
  if (sum("skipped")) parts.push(`${sum("skipped").toLocaleString("en")} skipped`);
  $("counts").textContent = parts.join(" · ");
  document.title = `(${sum("waiting")}) Review · streamer`;
  const gate = item?.gate ?? gates.find((each) => answer.recalibrating[each.gate])?.gate;
  const due = gate === undefined ? undefined : answer.recalibrating[gate];
  $("due").hidden = due === undefined;
  if (!$("due").hidden) {
    $("due-bar").max = due.wanted;
    $("due-bar").value = Math.min(due.labelled, due.wanted);
    const left = Math.max(0, due.wanted - due.labelled);
    $("due-text").textContent = left
      ? `${counted(left, "more labelled batch", "more labelled batches")} until ${gate} is recalibrated`
      : `enough labelled batches for ${gate} to be recalibrated`;
  }
  return gates;
}

// -- severities

const mine = (mark) => mark.labeller === (name ?? load("name", ""));

// Each has a key of its own: two tabs never write the same one. The oldest comes first.
function waitingMarks() {
  const marks = keysThatBegin("mark:").map((key) => load(key, null)).filter((mark) => mark !== null);
  return marks.sort((a, b) => a.given - b.given || a.count - b.count);
}

async function give(severity) {
  if (item === null || busy || performance.now() - item.since < SHORTEST_LOOK) return;
  busy = true;
  item.marks += 1;
  item.severity = severity;
  const mark = { labeller: name, given: Date.now(), item: item.token, severity, mark: randomName(), count: item.marks, remark: $("remark").value.trim(), wrong: [...item.wrong] };
  $("remark").value = "";
  last = { item, severity };
  keep("mark:" + mark.mark, mark);
  for (const [value, word] of WORDS) $(word).classList.toggle("given", severity === value);
  item = null;
  const told = await send();
  await forward(told);
  busy = false;
}

/** Send what waits, in the order in which it was given. Returns what to tell about the last; null when all is not sent. */
async function send() {
  return alone(async () => {
    let told = "";
    for (let mark; (mark = waitingMarks().find(mine)); ) {
      const { labeller, given, ...said } = mark;
      try {
        const answer = await ask("mark", { holder, ...said });
        if (last?.item.token === mark.item) told = tell(mark, answer.decided);
      } catch (trouble) {
        if (trouble.code !== "unknown_item" && trouble.code !== "bad_request") {
          troubled(trouble);
          return null;
        }
        keep("refused:" + mark.mark, { ...mark, why: trouble.message });
      }
      forget("mark:" + mark.mark);
    }
    calm();
    return told;
  });
}

let retry = 0;
let pause = 1000;

function troubled(trouble) {
  const count = waitingMarks().filter(mine).length;
  const kept = count ? ` ${counted(count, "severity that you gave is", "severities that you gave are")} kept in this browser and sent again.` : "";
  if (trouble.code === "no_session" || trouble.code === "no_name") {
    lock(kept.replace("sent again", "sent once you are in"));
  } else if (trouble.code === "away") {
    notice("The database does not answer." + kept + " This page tries again by itself.");
  } else if (trouble.code === "unreachable") {
    notice("The program behind this page does not answer: was it stopped?" + kept + " This page tries again by itself.");
  } else {
    notice(`The server refused (${trouble.message}).${kept}`);
  }
  clearTimeout(retry);
  retry = setTimeout(resume, pause);
  pause = Math.min(pause * 1.7, 15000);
}

function calm() {
  pause = 1000;
  const refused = keysThatBegin("refused:").length;
  const others = waitingMarks().filter((mark) => !mine(mark));
  const notes = [];
  if (refused) notes.push(`${counted(refused, "severity", "severities")} could not be stored: this database does not know the answer. They stay in this browser.`);
  if (others.length) notes.push(`This browser keeps ${counted(others.length, "severity", "severities")} that ${[...new Set(others.map((mark) => mark.labeller))].join(", ")} gave: they are sent once that person is here again.`);
  if (refusals.length) notes.push(`Not shown to you, because your labels would not be read: ${refusals.join("; ")}.`);
  notice(notes.join(" "));
}

/** Go on after trouble, with whatever is left to do. */
async function resume() {
  if (away) return;
  if (busy) {
    clearTimeout(retry);
    retry = setTimeout(resume, 500);
    return;
  }
  busy = true;
  try {
    if (name === null && !(await recognised())) return;
    if (waitingMarks().some(mine)) {
      const shown = item;
      const told = await send();
      if (shown === null) await forward(told);
    } else if (item !== null) calm();
    else if (document.hidden) await idle();
    else await forward("");
  } finally {
    busy = false;
  }
}

/** Nobody looks at this page: it takes no answer that somebody else could have, until somebody does. */
async function idle() {
  await progress();
  lookAgain();
}

function lookAgain() {
  clearTimeout(poll);
  poll = setTimeout(resume, 4000 + 2000 * Math.random());
}

/** Show what comes next; `told` is what was said of the last one, null when it is not stored yet. */
async function forward(told) {
  if (told === null) return stuck();
  clearTimeout(poll);
  try {
    const answer = await ask("next", { holder });
    holdSeconds = answer.hold_seconds;
    refusals = answer.refusals;
    calm();
    if (answer.item === null) return await nothingWaits(told);
    showItem({ ...answer.item, rubric: answer.rubric });
    say(`${told} Next answer.`.trim());
    progress();
  } catch (trouble) {
    troubled(trouble);
    stuck();
  }
}

/** Nothing can be shown until the server answers again. */
function stuck() {
  if (!$("locked").hidden || !$("enter").hidden || item !== null) return;
  $("empty-title").textContent = "Waiting for the server";
  $("empty-text").textContent = "Nothing that you gave is lost.";
  $("come-back").hidden = true;
  show("empty");
}

async function nothingWaits(told) {
  item = null;
  const gates = (await progress()) ?? [];
  const sum = (field) => gates.reduce((total, gate) => total + gate[field], 0);
  const texts = [];
  if (sum("held")) texts.push(`${counted(sum("held"), "answer is", "answers are")} with other people.`);
  for (const gate of gates.filter((each) => each.textless)) {
    texts.push(`${counted(gate.textless, "answer", "answers")} of gate ${gate.gate} cannot be shown, because it keeps no texts: label them from where the texts are (streamer label queue, streamer label import).`);
  }
  if (gates.length === 0 && refusals.length === 0) texts.push("No gate is controlled by severities that people give (streamer gate create --severity-kind human).");
  texts.push("This page looks again by itself.");
  $("empty-title").textContent = "Nothing waits for you";
  $("empty-text").textContent = texts.join(" ");
  $("come-back").hidden = true;
  const fresh = $("empty").hidden;
  show("empty");
  if (fresh) {
    $("empty-title").focus();
    say(told);
  }
  lookAgain();
}

// -- the other keys

async function acting(work) {
  if (busy) return;
  busy = true;
  try {
    await work();
  } catch (trouble) {
    if (!(trouble instanceof Trouble)) throw trouble;
    troubled(trouble);
  } finally {
    busy = false;
  }
}

function skip() {
  return acting(async () => {
    if (item === null || performance.now() - item.since < SHORTEST_LOOK) return;
    // What was opened again has its severity: going on keeps it.
    const again = item.severity !== null;
    if (!again) await ask("skip", { holder, item: item.token });
    item = null;
    await forward(again ? "Kept." : "Skipped.");
  });
}

function undo() {
  return acting(async () => {
    if (waitingMarks().some((mark) => mine(mark) && mark.item === last?.item.token)) {
      // It is not stored yet: it is still here, and what replaces it is sent after it.
      if (item?.token !== last.item.token) showItem(last.item);
      say(`Undo. You gave ${inWords(last.item.severity)}.`);
      return;
    }
    const before = item !== null && item.severity !== null ? item.token : null;
    const answer = await ask("back", { holder, before });
    calm();
    if (answer.item === null) {
      notice("There is nothing to undo: within the last hour you labelled nothing before this.");
      return;
    }
    clearTimeout(poll);
    showItem({ ...answer.item, rubric: answer.rubric });
    last = { item, severity: item.severity };
    $("last").textContent = "";
    say(`Undo. You gave ${inWords(item.severity)}; it stands until you give another.`);
  });
}

function others() {
  return acting(async () => {
    if (item === null || item.others === 0) return;
    if (!$("others").hidden) {
      hideOthers();
      return;
    }
    const answer = await ask("others", { holder, item: item.token });
    list($("others-list"), answer.others);
    $("others").hidden = false;
    $("show-others").setAttribute("aria-expanded", "true");
    $("others-title").scrollIntoView({ block: "nearest" });
    $("others").scrollIntoView({ block: "nearest" });
    say(`${counted(answer.others.length, "other answer", "other answers")} shown.`);
  });
}

function leave() {
  return acting(async () => {
    clearTimeout(poll);
    clearTimeout(retry);
    if ((await send()) === null) return;
    await ask("leave", { holder });
    away = true;
    item = null;
    notice("");
    $("empty-title").textContent = "You have left";
    $("empty-text").textContent = "What you gave is stored, and the answer that you had is free for others. You may close this page.";
    $("come-back").hidden = false;
    show("empty");
    $("empty-title").focus();
  });
}

async function renew() {
  if (item === null || item.severity !== null || busy || document.hidden) return;
  if (lastInput <= lastRenewal || Date.now() - lastRenewal < (holdSeconds * 1000) / 10) return;
  lastRenewal = Date.now();
  const asked = item;
  try {
    const answer = await ask("renew", { holder, item: asked.token });
    if (answer.held || item !== asked || busy) return;
    item = null;
    await acting(() => forward("Somebody else has labelled that answer, or has it now."));
  } catch {
    // Whatever is done next finds out.
  }
}

function typed(text) {
  const value = Number(text.trim().replace(",", ".").replace("½", "0.5"));
  return text.trim() !== "" && value >= 0 && value <= 1 ? value : null;
}

function pressed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || $("bar").hidden || $("keys").open) return;
  if (event.target instanceof HTMLInputElement || !load("single-keys", true)) return;
  const act = {
    f: () => give(0), h: () => give(0.5), w: () => give(1), r: () => $("remark").focus(), s: skip, u: undo,
    o: others, "?": help, n: () => item.claim.length && give(0),
  }[event.key.length === 1 ? event.key.toLowerCase() : ""];
  if (act) {
    event.preventDefault();
    act();
  } else if (/^[0-9.,]$/.test(event.key) && item !== null) {
    event.preventDefault();
    $("exact").value = event.key;
    $("exact").focus();
  }
}

function help() {
  $("single-keys").checked = load("single-keys", true);
  $("keys").showModal();
}

// -- coming in

function lock(kept) {
  name = null;
  item = null;
  last = null;
  $("remark").value = "";
  $("counts").textContent = "";
  $("due").hidden = true;
  show("locked");
  notice(kept.trim());
}

async function recognised() {
  // Whoever came in last with this browser, by whichever tab: from here on this page is theirs, and says so.
  key = load("key", "");
  try {
    ({ name } = await ask("who", { holder }));
  } catch (trouble) {
    troubled(trouble);
    stuck();
    return false;
  }
  if (name !== null) {
    welcome();
    return true;
  }
  // Somebody is typing it: no second form over the first.
  if ($("enter").hidden) {
    $("enter-name").value = load("name", "");
    show("enter");
    $("enter-name").focus();
  }
  return false;
}

function welcome() {
  $("name").textContent = name;
  keep("name", name);
  calm();
}

/** Exchange the token of the address, and take it out of the address at once. */
async function enterBy(token) {
  history.replaceState(null, "", location.pathname);
  for (;;) {
    try {
      const answer = await ask("enter", { token });
      keep("key", answer.key);
      name = null;
      item = null;
      last = null;
      notice("");
      return;
    } catch (trouble) {
      if (trouble.code === "unreachable") {
        notice("The program behind this page does not answer. This page tries again by itself.");
        await new Promise((done) => setTimeout(done, 2000));
        continue;
      }
      notice("That address is not, or no longer, the one that was printed.");
      return;
    }
  }
}

async function begin() {
  clearTimeout(retry);
  busy = false;
  const token = location.hash.slice(1);
  if (token) await enterBy(token);
  if (load("key", "") === "") lock($("notice").textContent);
  else await resume();
}

$("enter-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await ask("name", { name: $("enter-name").value });
    notice("");
    await resume();
  } catch (trouble) {
    if (trouble.code === "bad_request") notice(trouble.message);
    else troubled(trouble);
  }
});
$("exact-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = typed($("exact").value);
  if (value === null) {
    wrongNumber("A severity is a number from 0 to 1, like 0.3.");
    return;
  }
  $("exact").blur();
  give(value);
});
$("exact").addEventListener("input", () => wrongNumber(""));
$("exact").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  $("exact").value = "";
  wrongNumber("");
  $("exact").blur();
});
$("remark").addEventListener("keydown", (event) => {
  if (event.key !== "Escape" && event.key !== "Enter") return;
  if (event.key === "Escape") $("remark").value = "";
  event.preventDefault();
  $("remark").blur();
});
for (const [severity, word] of WORDS) $(word).addEventListener("click", () => give(severity));
$("skip").addEventListener("click", skip);
$("undo").addEventListener("click", undo);
$("show-others").addEventListener("click", others);
$("help").addEventListener("click", help);
$("leave").addEventListener("click", leave);
$("come-back").addEventListener("click", () => {
  away = false;
  resume();
});
$("single-keys").addEventListener("change", () => keep("single-keys", $("single-keys").checked));
document.addEventListener("keydown", pressed);
for (const kind of ["keydown", "pointerdown", "pointermove", "wheel", "scroll"]) {
  document.addEventListener(kind, () => (lastInput = Date.now()), { passive: true, capture: true });
}
document.addEventListener("visibilitychange", () => {
  renew();
  if (!document.hidden && item === null && load("key", "") !== "") resume();
});
setInterval(renew, 1000);
window.addEventListener("hashchange", begin); // the new address was put into this tab: only its fragment is new
window.addEventListener("storage", (event) => {
  if (event.key !== STORE + "key") return;
  lock(""); // another tab came in, perhaps with somebody else at it
  resume();
});
if (location.pathname !== "/") {
  // A part of the console, which gives the key.
  $("console").hidden = $("locked-console").hidden = false;
  $("locked-text").hidden = true;
  $("locked").querySelector("h2").textContent = "Your session here has ended";
}
window.addEventListener("beforeunload", (event) => {
  if (waitingMarks().some(mine)) event.preventDefault();
});

begin();
