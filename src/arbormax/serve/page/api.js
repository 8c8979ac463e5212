/** The service behind the page: JSON in and out, one kind of error, and the key where one is needed. */

const KEY = "arbormax-key";
let askForKey = async () => null;

/** What the service or the network had to say instead of an answer. */
export class ApiError extends Error {
  /**
   * @param {string} message  in words for the reader
   * @param {number} status   0 where nothing answered
   * @param {number} wait     seconds after which it may be tried again
   */
  constructor(message, status, wait = 0) {
    super(message);
    this.status = status;
    this.wait = wait;
  }
}

/** Has the page ask people for the key with this function when the service wants one; it gives null on refusal. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/**
 * @param {string} path
 * @param {Record<string, string|number>} [query]
 * @param {AbortSignal} [signal]
 */
export function get(path, query = {}, signal) {
  const given = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
  return call(`v1/${path}${given.size ? `?${given}` : ""}`, { signal });
}

/**
 * @param {string} path
 * @param {object} body
 * @param {AbortSignal} [signal]
 */
export function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return call(`v1/${path}`, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function call(address, request) {
  const key = stored();
  const headers = { Accept: "application/json", ...request.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await reach(address, { ...request, headers });
  if (response.ok) return response.json();
  if (response.status === 401) {
    const given = await askForKey(Boolean(key));
    if (given) {
      sessionStorage.setItem(KEY, given);
      return call(address, request);
    }
  }
  throw await problem(response);
}

async function reach(address, request) {
  try {
    return await fetch(address, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The service does not answer. Is it still running, and are you online?", 0);
  }
}

async function problem(response) {
  const told = await response.json().catch(() => ({}));
  const wait = Number(response.headers.get("Retry-After")) || 0;
  const usual = response.status === 503 ? "The service is busy: please try again in a moment." : response.statusText;
  const defects = (told.errors ?? []).map((error) => `: ${error.detail}`);
  const message = told.detail || told.title || usual || `The service answered ${response.status}.`;
  return new ApiError(message + (defects[0] ?? ""), response.status, wait);
}

function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
