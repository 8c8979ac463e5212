/** A list of any length of which only what is seen exists; rows come in pages when they are scrolled to. */

import { el } from "./dom.js";

export const ROW = 44;
const PAGE = 200;
const SPARE = 8;

/**
 * A virtual list inside a scrolling element.
 * @param {HTMLElement} box
 * @param {object} content
 * @param {(offset: number, limit: number) => Promise<any[]>} content.load
 * @param {(entry: any) => HTMLElement} content.row
 * @param {number} content.total
 * @param {any[]} content.first  the first page, where it is known
 */
export function createList(box, { load, row, total, first }) {
  const pages = new Map(first.length ? [[0, Promise.resolve(first)]] : []);
  const entries = [];
  const shown = new Map();
  let gone = false;
  first.slice(0, PAGE).forEach((entry, place) => (entries[place] = entry));
  if (first.length < Math.min(PAGE, total)) pages.clear();

  const list = el("ul", { class: "rows" });
  list.style.height = `${total * ROW}px`;
  box.replaceChildren(list);
  box.scrollTop = 0;
  box.onscroll = draw;
  box.onkeydown = walk;

  function draw() {
    if (gone) return;
    const from = Math.max(0, Math.floor(box.scrollTop / ROW) - SPARE);
    const to = Math.min(total, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + SPARE);
    for (const [place, item] of shown) {
      const kept = (place >= from && place < to) || item.contains(document.activeElement);
      if (kept && item.dataset.ready === String(place in entries)) continue;
      item.remove();
      shown.delete(place);
    }
    for (let place = from; place < to; place += 1) if (!shown.has(place)) show(place);
    for (let page = Math.floor(from / PAGE); page * PAGE < to; page += 1) fetchPage(page);
  }

  function show(place) {
    const ready = place in entries;
    const inside = ready ? row(entries[place]) : el("span", { class: "waiting" }, "…");
    const item = el("li", { "aria-setsize": total, "aria-posinset": place + 1, "data-ready": String(ready) }, inside);
    item.style.transform = `translateY(${place * ROW}px)`;
    const after = [...shown.keys()].filter((other) => other > place).sort((a, b) => a - b)[0];
    list.insertBefore(item, after === undefined ? null : shown.get(after));
    shown.set(place, item);
  }

  async function fetchPage(page) {
    if (pages.has(page)) return;
    const coming = load(page * PAGE, PAGE);
    pages.set(page, coming);
    try {
      (await coming).forEach((entry, place) => (entries[page * PAGE + place] = entry));
      draw();
    } catch {
      pages.delete(page); // asked for again at the next scroll
    }
  }

  function walk(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -total, End: total }[event.key];
    const at = [...shown].find(([, item]) => item.contains(document.activeElement))?.[0];
    if (!steps || at === undefined) return;
    event.preventDefault();
    const goal = Math.max(0, Math.min(total - 1, at + steps));
    if (goal * ROW < box.scrollTop) box.scrollTop = goal * ROW;
    else if ((goal + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (goal + 1) * ROW - box.clientHeight;
    draw();
    shown.get(goal)?.querySelector("a, button")?.focus({ preventScroll: true });
    draw();
  }

  const watched = new ResizeObserver(draw);
  watched.observe(box);
  draw();
  return {
    /** Ends it: nothing is drawn from then on. */
    close() {
      gone = true;
      watched.disconnect();
    },
  };
}
