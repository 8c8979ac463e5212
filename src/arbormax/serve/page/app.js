/** Puts the parts together: which view is seen, what the address says, the model's name, the key, the colours. */

import { get, onKeyNeeded } from "./api.js";
import { createClasses } from "./classes.js";
import { byId, debounce, plural } from "./dom.js";
import { createExplain } from "./explain.js";
import { read, write } from "./state.js";
import { createTable } from "./table.js";

const classes = createClasses();
const table = createTable();
const explain = createExplain({
  changed: remember,
  browse: (node) => (location.hash = write({ view: "classes", node })),
});
let last = write({}); // the text view's fragment, to come back to
let open = "";

// typing changes the address in place, and not at every letter: browsers slow down pages that write it too often
const rememberSoon = debounce((fragment) => history.replaceState(null, "", fragment), 300);

function remember(state, settled) {
  last = write(state);
  rememberSoon(last);
  if (settled) {
    rememberSoon.cancel();
    history.replaceState(null, "", last);
  }
  byId("to-text").href = last;
}

function show() {
  const state = read(location.hash);
  rememberSoon.cancel();
  for (const view of document.querySelectorAll("main > section")) view.hidden = view.id !== `view-${state.view}`;
  for (const link of document.querySelectorAll("nav.views a")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (state.view === "text") {
    byId("to-text").href = last = write(state);
    explain.open(state);
  }
  if (state.view === "classes") classes.open(state.node ?? 0);
  if (open && open !== state.view) focusTitle(state.view);
  open = state.view;
}

const focusTitle = (view) => byId(`view-${view}`).querySelector("h1").focus();

async function introduce() {
  try {
    const model = await get("model");
    byId("model").textContent = `${model.name} · ${plural(model.classes, "class", "classes")}`;
    document.title = `${model.name} · arbormax`;
    explain.introduce(model);
    table.introduce(model);
  } catch (error) {
    byId("model").textContent = error.message;
  }
}

let asking = null;

/** The key that people type in, or null; several requests at a time ask once. */
function askForKey(wrong) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    dialog.returnValue = "";
    byId("key").value = "";
    byId("key-wrong").hidden = !wrong;
    dialog.showModal();
    dialog.addEventListener("close", () => {
      asking = null;
      resolve(dialog.returnValue === "ok" ? byId("key").value.trim() : null);
    }, { once: true });
  });
  return asking;
}

async function share() {
  rememberSoon.cancel();
  history.replaceState(null, "", last);
  const field = byId("link");
  try {
    await navigator.clipboard.writeText(location.href);
    byId("shared").textContent = "Copied: whoever opens the link sees this text.";
  } catch {
    // without leave to write to the clipboard people copy it themselves
    field.hidden = false;
    field.value = location.href;
    field.select();
    byId("shared").textContent = "Copy the link from the field.";
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function turn() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // then for this visit only
  }
  nameTheme();
}

function nameTheme() {
  byId("theme").setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
}

onKeyNeeded(askForKey);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the state
  focusTitle(open);
});
byId("share").addEventListener("click", share);
byId("theme").addEventListener("click", turn);
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault(); // the policy lets no form be sent
  byId("key-dialog").close("ok");
});
byId("key-cancel").addEventListener("click", () => byId("key-dialog").close(""));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
addEventListener("hashchange", show);
nameTheme();
introduce();
show();
