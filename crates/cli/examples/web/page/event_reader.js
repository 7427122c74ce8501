// Reads the events of one session, for as long as the page is visible.
//
// A browser opens at most six connections to one server. So a hidden page closes its connection, and resumes after
// its last event when it is visible again.

import { sessionPath } from './server.js';

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

export class EventReader {
  #id;
  #listener;
  #source = null;
  #last = null;
  #timer = 0;
  #wait = FIRST_WAIT_MS;

  /**
   * `listener` has `snapshot(data)`, `event(data)`, `ended(data)`, `connected()` and `disconnected(why)`.
   */
  constructor(id, listener) {
    this.#id = id;
    this.#listener = listener;
    document.addEventListener('visibilitychange', this.#onVisibility);
    this.#connect();
  }

  close() {
    document.removeEventListener('visibilitychange', this.#onVisibility);
    this.#disconnect();
  }

  #onVisibility = () => {
    if (document.hidden) this.#disconnect();
    else this.#connect();
  };

  #disconnect() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #connect() {
    this.#disconnect();
    if (document.hidden) return;
    const query = this.#last ? `?after=${encodeURIComponent(this.#last)}` : '';
    const source = new EventSource(sessionPath(this.#id, `events${query}`));
    this.#source = source;
    source.onopen = () => {
      this.#wait = FIRST_WAIT_MS;
      this.#listener.connected();
    };
    source.onmessage = ({ data, lastEventId }) => {
      if (source !== this.#source) return;
      if (lastEventId) this.#last = lastEventId;
      const event = JSON.parse(data);
      if (event.type === 'snapshot') {
        if (!event.run) this.#last = null;
        this.#listener.snapshot(event);
      } else if (event.type === 'ended') this.#listener.ended(event);
      else this.#listener.event(event);
    };
    source.addEventListener('too_slow', () => this.#again('This page was too slow. Reconnecting …'));
    source.addEventListener('shutting_down', () => this.#again('The server is shutting down.'));
    source.addEventListener('end', () => this.#again('The session could not be read.'));
    source.onerror = () => this.#again('The connection was lost. Reconnecting …');
  }

  /** Reconnects after a delay, which grows with each attempt. */
  #again(why) {
    this.#disconnect();
    this.#listener.disconnected(why);
    this.#timer = setTimeout(() => this.#connect(), this.#wait);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
  }
}
