// The console's only script: parts of a page that refresh themselves, and the link of the terminal.

/** Fetch this page again, as a document: nothing of it is ever read as a string of HTML, and no script in it runs. */
function fetched() {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.timeout = 20000;
    request.setRequestHeader("x-refresh", "1");
    request.onload = () => done(request.status === 200 ? request.response : null);
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
