// Requests to the server.

/** A request that the server has refused, or that did not reach it (status 0). */
export class ServerError extends Error {
  constructor(status, message, waitingCalls = 0) {
    super(message);
    this.status = status;
    /** The number of calls that wait for approval, which the request would give up. */
    this.waitingCalls = waitingCalls;
  }
}

async function request(method, path, body, headers = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? headers : { 'content-type': 'application/json', ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ServerError(0, 'The server cannot be reached.');
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const message = answer.error ?? `The server answered ${response.status}.`;
    throw new ServerError(response.status, message, answer.waiting_calls);
  }
  return answer;
}

export const get = (path) => request('GET', path);
export const post = (path, body, headers) => request('POST', path, body, headers);

/** The path of a session. */
export const sessionPath = (id, rest) => `/sessions/${encodeURIComponent(id)}/${rest}`;

/** An id of 128 random bits. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
