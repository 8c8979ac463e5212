/** The page: its views, the state in the URL, the name of the model, the API key and the colour theme. */

import { get, onKeyNeeded } from "./api.js";
import { createClasses } from "./classes.js";
import { byId, debounce, plural } from "./dom.js";
import { createExplain } from "./explain.js";
import { read, write } from "./state.js";
import { createTable } from "./table.js";

const classes = createClasses();
const table = createTable();
const explain = createExplain({
  changed: saveState,
  browse: (node) => (location.hash = write({ view: "classes", node })),
});
let textFragment = write({}); // the URL fragment of the text view
let openView = "";

// browsers slow down pages that change the URL at every key press
const replaceUrlSoon = debounce((fragment) => history.replaceState(null, "", fragment), 300);

function saveState(state, settled) {
  textFragment = write(state);
  replaceUrlSoon(textFragment);
  if (settled) {
    replaceUrlSoon.cancel();
    history.replaceState(null, "", textFragment);
  }
  byId("text-link").href = textFragment;
}

function show() {
  const state = read(location.hash);
  replaceUrlSoon.cancel();
  for (const view of document.querySelectorAll("main > section")) view.hidden = view.id !== `view-${state.view}`;
  for (const link of document.querySelectorAll("nav.views a")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (state.view === "text") {
    byId("text-link").href = textFragment = write(state);
    explain.open(state);
  }
  if (state.view === "classes") classes.open(state.node ?? 0);
  if (openView && openView !== state.view) focusTitle(state.view);
  openView = state.view;
}

const focusTitle = (view) => byId(`view-${view}`).querySelector("h1").focus();

async function loadModel() {
  try {
    const model = await get("model");
    byId("model").textContent = `${model.name} · ${plural(model.classes, "class", "classes")}`;
    document.title = `${model.name} · arbormax`;
    explain.setModel(model);
    table.setModel(model);
  } catch (error) {
    byId("model").textContent = error.message;
  }
}

let keyPromise = null;

/** The key that the user enters, or null; simultaneous requests share one dialog. */
function askForKey(wasRejected) {
  keyPromise ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    dialog.returnValue = "";
    byId("key").value = "";
    byId("key-rejected").hidden = !wasRejected;
    dialog.showModal();
    dialog.addEventListener("close", () => {
      keyPromise = null;
      resolve(dialog.returnValue === "ok" ? byId("key").value.trim() : null);
    }, { once: true });
  });
  return keyPromise;
}

async function share() {
  replaceUrlSoon.cancel();
  history.replaceState(null, "", textFragment);
  const field = byId("link");
  try {
    await navigator.clipboard.writeText(location.href);
    byId("share-status").textContent = "Link copied. It contains this text.";
  } catch {
    // the page may not write to the clipboard
    field.hidden = false;
    field.value = location.href;
    field.select();
    byId("share-status").textContent = "Copy the link from the field.";
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // storage is not available: the theme lasts until the page is closed
  }
  updateThemeLabel();
}

function updateThemeLabel() {
  byId("theme").setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
}

onKeyNeeded(askForKey);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment holds the state of the page
  focusTitle(openView);
});
byId("share").addEventListener("click", share);
byId("theme").addEventListener("click", toggleTheme);
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault(); // the content security policy forbids to submit forms
  byId("key-dialog").close("ok");
});
byId("key-cancel").addEventListener("click", () => byId("key-dialog").close(""));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", updateThemeLabel);
addEventListener("hashchange", show);
updateThemeLabel();
loadModel();
show();
