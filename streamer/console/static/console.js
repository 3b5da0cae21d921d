// The console's only script: parts of a page that refresh themselves, and the link of the terminal.

/** Fetch a page as a document: nothing of it is ever read as a string of HTML, and no script in it runs. */
function fetched(address = location.href) {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open("GET", address);
    request.responseType = "document";
    request.timeout = 20000;
    request.setRequestHeader("x-refresh", "1");
    request.onload = () => {
      document.documentElement.classList.toggle("ended", request.status === 401);
      done(request.status === 200 ? request.response : null);
    };
    request.onerror = request.ontimeout = () => done(null);
    request.send();
  });
}

const live = () => [...document.querySelectorAll("[data-live]")];
let waits = false;

async function refresh(due) {
  if (waits || document.hidden) return;
  waits = true;
  const found = await fetched();
  waits = false;
  document.documentElement.classList.toggle("stale", found === null);
  if (found === null) return;
  for (const part of live()) {
    const fresh = found.getElementById(part.id);
    // What somebody is in the middle of stays as it is.
    if (!due(part) || fresh === null || part.contains(document.activeElement)) continue;
    if (part.outerHTML === fresh.outerHTML || String(getSelection()) !== "") continue;
    part.replaceWith(document.importNode(fresh, true));
  }
}

if (live().length > 0) {
  let seconds = 0;
  setInterval(() => {
    seconds += 1;
    const due = (part) => seconds % Number(part.dataset.live) === 0;
    if (live().some(due)) refresh(due);
  }, 1000);
  document.addEventListener("visibilitychange", () => refresh(() => true));
}

const enter = document.getElementById("enter");
if (enter !== null) {
  const token = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  if (token !== "") {
    enter.elements.token.value = token;
    enter.submit();
  }
}

// The sliders of what-if: each move asks, and the answer takes the place of the one before.
for (const form of document.querySelectorAll("form[data-answer]")) {
  const fields = form.elements;
  let asked = 0;
  let soon = 0;

  async function ask() {
    const mine = ++asked;
    const place = document.getElementById(form.dataset.answer);
    place.setAttribute("aria-busy", "true");
    const found = await fetched(`${form.action}?${new URLSearchParams(new FormData(form))}`);
    const fresh = found?.getElementById(place.id);
    if (mine !== asked) return; // a later move has asked
    if (fresh) place.replaceChildren(...document.importNode(fresh, true).childNodes);
    else place.textContent = "The console does not answer.";
    place.removeAttribute("aria-busy");
    // The sentence alone is read out; the rest is there for whoever wants it.
    document.getElementById("what-if-said").textContent = (place.querySelector(".sentence, .notice") ?? place).textContent;
  }

  form.addEventListener("input", (event) => {
    const moved = event.target;
    if (moved.dataset.of) fields[moved.dataset.of].value = moved.value;
    const about = moved.dataset.of ?? moved.name;
    if (about === "budget" || about === "threshold") {
      fields.about.value = about;
      form.querySelector(`[data-of=${about}]`).value = fields[about].value;
    }
    clearTimeout(soon);
    soon = setTimeout(ask, 200);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
}

// The desk: single keys move the focus and decide nothing; what somebody else has decided disables the buttons.
const keysOff = "streamer-single-keys-off";
const single = document.getElementById("single-keys");
if (single !== null) {
  single.checked = localStorage.getItem(keysOff) === null;
  single.addEventListener("change", () => {
    if (single.checked) localStorage.removeItem(keysOff);
    else localStorage.setItem(keysOff, "1");
  });
}

const stops = () => [...document.querySelectorAll("[data-keys=list] .head a, [data-place]")];

document.addEventListener("keydown", (event) => {
  if (single === null || !single.checked || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input:not([type=checkbox]), textarea, select")) return;
  const all = stops();
  const at = all.indexOf(document.activeElement);
  const here = at < 0 ? null : all[at].closest("li");
  const to = {
    j: () => all[Math.min(at + 1, all.length - 1)],
    k: () => all[Math.max(at - 1, 0)],
    e: () => (here ?? document).querySelector("[data-edit]"),
    x: () => document.querySelector("[data-key=x]"),
    u: () => document.querySelector("[data-key=u]"),
    m: () => document.getElementById("remark"),
  }[event.key] ?? (/^[1-9]$/.test(event.key) ? () => all.find((one) => one.dataset.place === event.key) : null);
  const found = to?.();
  if (!found) return;
  event.preventDefault();
  if (event.key === "e" || event.key === "u") found.click();
  else {
    found.focus();
    found.scrollIntoView({ block: "nearest" });
  }
});

const deskForm = document.getElementById("desk-form");
if (deskForm !== null) {
  new MutationObserver(() => {
    if (document.getElementById("desk-state")?.dataset.settled !== "yes") return;
    for (const one of deskForm.querySelectorAll("button, input, textarea")) one.disabled = true;
  }).observe(document.getElementById("main"), { childList: true, subtree: true });
}
