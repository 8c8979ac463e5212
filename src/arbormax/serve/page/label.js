/** Many texts through the service, in pieces that it takes, with patience when it is busy. */

import { post } from "./api.js";

const PIECE = 200; // small enough that progress is seen
const PATIENCE = 12;
const encoder = new TextEncoder();

/**
 * Answers for all texts that have none yet, written into `answers`; blank texts stay without.
 * @param {string[]} texts
 * @param {any[]} answers  as long as texts; null where nothing is known, kept over calls to go on after a stop
 * @param {object} how
 * @param {{max_texts: number, max_characters: number, max_body_bytes: number}} how.limits
 * @param {object} how.options  what goes along with every request
 * @param {(done: number, waits: boolean) => void} how.onProgress
 * @param {AbortSignal} how.signal
 */
export async function labelAll(texts, answers, { limits, options, onProgress, signal }) {
  let done = 0;
  for (const piece of pieces(texts, answers, limits)) {
    if (piece.length) {
      const body = { ...options, texts: piece.map((place) => shortened(texts[place], limits.max_characters)) };
      const { predictions } = await patiently(body, signal, () => onProgress(done, true));
      piece.forEach((place, at) => (answers[place] = predictions[at]));
      done = piece.at(-1) + 1;
    }
    onProgress(done, false);
  }
  onProgress(texts.length, false);
}

/**
 * A text no longer than the service takes.
 * @param {string} text
 * @param {number} most
 */
export function shortened(text, most) {
  if (text.length <= most) return text;
  return text.slice(0, most).replace(/[\ud800-\udbff]$/, "");
}

function* pieces(texts, answers, limits) {
  const most = Math.min(PIECE, limits.max_texts);
  let piece = [];
  let bytes = 0;
  for (let place = 0; place < texts.length; place += 1) {
    if (answers[place] || !texts[place].trim()) continue;
    const size = encoder.encode(JSON.stringify(shortened(texts[place], limits.max_characters))).length + 1;
    if (piece.length === most || (piece.length && bytes + size > 0.9 * limits.max_body_bytes)) {
      yield piece;
      [piece, bytes] = [[], 0];
    }
    piece.push(place);
    bytes += size;
  }
  if (piece.length) yield piece;
}

async function patiently(body, signal, onWait) {
  for (let tried = 1; ; tried += 1) {
    try {
      return await post("predict", body, signal);
    } catch (error) {
      if (error.status !== 503 || tried >= PATIENCE) throw error;
      onWait();
      await pause(Math.min(60, error.wait || 2 ** Math.min(tried, 5)), signal);
    }
  }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    signal.addEventListener("abort", stop, { once: true });
  });
}
