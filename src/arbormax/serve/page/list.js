/** A list of any length: only visible rows have elements, and rows are loaded in pages on scrolling. */

import { el } from "./dom.js";

const ROW_HEIGHT = 44;
const PAGE_SIZE = 200;
const OVERSCAN = 8; // rows outside of the visible area

/**
 * Creates the list inside a scrolling element.
 * @param {HTMLElement} box
 * @param {object} content
 * @param {(offset: number, limit: number) => Promise<any[]>} content.load
 * @param {(entry: any) => HTMLElement} content.row
 * @param {number} content.total
 * @param {any[]} content.first  the first page, or an empty array
 */
export function createList(box, { load, row, total, first }) {
  const pages = new Map(first.length ? [[0, Promise.resolve(first)]] : []);
  const entries = [];
  const shown = new Map();
  let isClosed = false;
  first.slice(0, PAGE_SIZE).forEach((entry, index) => (entries[index] = entry));
  if (first.length < Math.min(PAGE_SIZE, total)) pages.clear();

  const list = el("ul", { class: "rows" });
  list.style.height = `${total * ROW_HEIGHT}px`;
  box.replaceChildren(list);
  box.scrollTop = 0;
  box.onscroll = draw;
  box.onkeydown = moveFocus;

  function draw() {
    if (isClosed) return;
    const from = Math.max(0, Math.floor(box.scrollTop / ROW_HEIGHT) - OVERSCAN);
    const to = Math.min(total, Math.ceil((box.scrollTop + box.clientHeight) / ROW_HEIGHT) + OVERSCAN);
    for (const [index, item] of shown) {
      const isKept = (index >= from && index < to) || item.contains(document.activeElement);
      if (isKept && item.dataset.ready === String(index in entries)) continue;
      item.remove();
      shown.delete(index);
    }
    for (let index = from; index < to; index += 1) if (!shown.has(index)) show(index);
    for (let page = Math.floor(from / PAGE_SIZE); page * PAGE_SIZE < to; page += 1) fetchPage(page);
  }

  function show(index) {
    const ready = index in entries;
    const inside = ready ? row(entries[index]) : el("span", { class: "waiting" }, "…");
    const item = el("li", { "aria-setsize": total, "aria-posinset": index + 1, "data-ready": String(ready) }, inside);
    item.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
    const after = [...shown.keys()].filter((other) => other > index).sort((a, b) => a - b)[0];
    list.insertBefore(item, after === undefined ? null : shown.get(after));
    shown.set(index, item);
  }

  async function fetchPage(page) {
    if (pages.has(page)) return;
    const loading = load(page * PAGE_SIZE, PAGE_SIZE);
    pages.set(page, loading);
    try {
      (await loading).forEach((entry, index) => (entries[page * PAGE_SIZE + index] = entry));
      draw();
    } catch {
      pages.delete(page); // loaded again on the next scroll event
    }
  }

  function moveFocus(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -total, End: total }[event.key];
    const current = [...shown].find(([, item]) => item.contains(document.activeElement))?.[0];
    if (!steps || current === undefined) return;
    event.preventDefault();
    const target = Math.max(0, Math.min(total - 1, current + steps));
    const [top, bottom] = [target * ROW_HEIGHT, (target + 1) * ROW_HEIGHT];
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
    draw();
    shown.get(target)?.querySelector("a, button")?.focus({ preventScroll: true });
    draw();
  }

  const observer = new ResizeObserver(draw);
  observer.observe(box);
  draw();
  return {
    /** Stops all updates of the list. */
    close() {
      isClosed = true;
      observer.disconnect();
    },
  };
}
