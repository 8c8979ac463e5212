/** Requests to the service: JSON, one class of errors, and the API key. */

const KEY = "arbormax-key";
let askForKey = async () => null;

/** An error response of the service, or a network error. */
export class ApiError extends Error {
  /**
   * @param {string} message  shown to the user
   * @param {number} status   HTTP status, 0 for a network error
   * @param {number} wait     seconds to wait before a retry
   */
  constructor(message, status, wait = 0) {
    super(message);
    this.status = status;
    this.wait = wait;
  }
}

/** Sets the function that asks the user for the API key; it resolves to null if the user cancels. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/**
 * @param {string} path
 * @param {Record<string, string|number>} [query]
 * @param {AbortSignal} [signal]
 */
export function get(path, query = {}, signal) {
  const parameters = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
  return call(`v1/${path}${parameters.size ? `?${parameters}` : ""}`, { signal });
}

/**
 * The names of nodes in a text, or null if there are none.
 * @param {string} text
 * @param {string} separator
 */
export function parseNodes(text, separator) {
  const names = text.split(separator).map((name) => name.trim()).filter(Boolean);
  return names.length ? names : null;
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

async function call(url, request) {
  const key = storedKey();
  const headers = { Accept: "application/json", ...request.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await send(url, { ...request, headers });
  if (response.ok) return response.json();
  if (response.status === 401) {
    const entered = await askForKey(Boolean(key));
    if (entered) {
      sessionStorage.setItem(KEY, entered);
      return call(url, request);
    }
  }
  throw await toError(response);
}

async function send(url, request) {
  try {
    return await fetch(url, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The service does not respond. Check that it is running and that you are online.", 0);
  }
}

async function toError(response) {
  const content = await response.json().catch(() => ({}));
  const wait = Number(response.headers.get("Retry-After")) || 0;
  const fallback = response.status === 503 ? "The service is busy. Try again in a moment." : response.statusText;
  const details = (content.errors ?? []).map((error) => `: ${error.detail}`);
  const message = content.detail || content.title || fallback || `The service returned status ${response.status}.`;
  return new ApiError(message + (details[0] ?? ""), response.status, wait);
}

function storedKey() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
