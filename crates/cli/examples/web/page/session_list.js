// The side list of sessions.

import { byId, element } from './elements.js';
import { get } from './server.js';
import { prose } from './visible_text.js';
import { timeWords } from './words.js';

export class SessionList {
  #list = byId('sessions');
  #more = byId('more-sessions');
  #current = '';
  #next = null;

  /** `open(id)` opens a session. */
  constructor(open) {
    this.#list.addEventListener('click', (event) => {
      const link = event.target.closest('a');
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      open(link.dataset.id);
    });
    this.#more.addEventListener('click', () => this.#load(this.#next));
  }

  async show(current) {
    this.#current = current;
    await this.#load(null);
  }

  async #load(after) {
    const { sessions, next } = await get(after ? `/sessions?after=${encodeURIComponent(after)}` : '/sessions');
    const items = sessions.map((session) => this.#item(session));
    if (after) this.#list.append(...items);
    else this.#list.replaceChildren(...items);
    this.#next = next;
    this.#more.hidden = !next;
  }

  /** A copy of the title of the session that is open, once it is listed. */
  title() {
    return this.#list.querySelector('[aria-current] .title')?.cloneNode(true);
  }

  #item({ id, title, updated_at: time, forked_from: origin, is_running: isRunning, read_error: error }) {
    const details = [timeWords(time)];
    if (origin) details.push('fork');
    if (isRunning) details.push('running');
    if (error) details.push('cannot be read');
    const link = element(
      'a',
      { href: `#${id}`, 'data-id': id, 'aria-current': id === this.#current ? 'page' : false },
      element('span', { className: 'title' }, prose(title || 'Untitled')),
      element('span', { className: 'details' }, details.join(' · ')),
    );
    return element('li', {}, link);
  }
}
