/** Predicts many texts in requests of limited size, and waits when the service is busy. */

import { post } from "./api.js";

const CHUNK_SIZE = 200; // small enough for a smooth progress bar
const JOINT = 6; // characters that join a column to the others, at most
const MAX_ATTEMPTS = 12;
const encoder = new TextEncoder();

/**
 * The text of an input, or the values of its columns.
 * @typedef {string|Record<string, string>} Input
 */

/**
 * Writes the predictions of all texts that have none yet into `predictions`; blank texts get none.
 * @param {(Input|null)[]} texts  null for a blank one
 * @param {any[]} predictions  one entry per text, null if unknown; pass it again to continue after a stop
 * @param {object} how
 * @param {{max_texts: number, max_characters: number, max_body_bytes: number}} how.limits
 * @param {object} how.options  further fields of every request
 * @param {(string[]|null)[]|null} how.within  the groups that restrict each text, or null
 * @param {(done: number, isWaiting: boolean) => void} how.onProgress
 * @param {AbortSignal} how.signal
 */
export async function predictAll(texts, predictions, { limits, options, within, onProgress, signal }) {
  let done = 0;
  const own = encoder.encode(JSON.stringify(options)).length;
  for (const chunk of chunks(texts, predictions, limits, own)) {
    if (chunk.length) {
      const body = { ...options, texts: chunk.map((index) => truncate(texts[index], limits.max_characters)) };
      if (within) body.within = chunk.map((index) => within[index]);
      const response = await predictWithRetries(body, signal, () => onProgress(done, true));
      chunk.forEach((index, position) => (predictions[index] = response.predictions[position]));
      done = chunk.at(-1) + 1;
    }
    onProgress(done, false);
  }
  onProgress(texts.length, false);
}

/**
 * A text of at most `maxLength` characters; of several columns, each has an equal share if they are too long.
 * @param {Input} text
 * @param {number} maxLength
 */
export function truncate(text, maxLength) {
  if (isShort(text, maxLength)) return text;
  if (typeof text === "string") return text.slice(0, maxLength).replace(/[\ud800-\udbff]$/, "");
  const columns = Object.entries(text);
  const share = Math.floor(maxLength / columns.length);
  return Object.fromEntries(
    columns.map(([name, value]) => [name, truncate(value, Math.max(0, share - name.length - JOINT))]),
  );
}

/**
 * Whether a text needs no truncation.
 * @param {Input} text
 * @param {number} maxLength
 */
export function isShort(text, maxLength) {
  if (typeof text === "string") return text.length <= maxLength;
  const sizes = Object.entries(text).map(([name, value]) => name.length + value.length + JOINT);
  return sizes.reduce((sum, size) => sum + size, 0) <= maxLength;
}

function* chunks(texts, predictions, limits, own) {
  const maxTexts = Math.min(CHUNK_SIZE, limits.max_texts);
  let chunk = [];
  let bytes = own;
  for (let index = 0; index < texts.length; index += 1) {
    if (predictions[index] || !texts[index]) continue;
    const size = encoder.encode(JSON.stringify(truncate(texts[index], limits.max_characters))).length + 1;
    if (chunk.length === maxTexts || (chunk.length && bytes + size > 0.9 * limits.max_body_bytes)) {
      yield chunk;
      [chunk, bytes] = [[], own];
    }
    chunk.push(index);
    bytes += size;
  }
  if (chunk.length) yield chunk;
}

async function predictWithRetries(body, signal, onWait) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await post("predict", body, signal);
    } catch (error) {
      if (error.status !== 503 || attempt >= MAX_ATTEMPTS) throw error;
      onWait();
      await pause(Math.min(60, error.wait || 2 ** Math.min(attempt, 5)), signal);
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
