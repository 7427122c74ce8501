// Shows that the model is thinking, and for how long, while nothing else on the page changes.

import { element } from './elements.js';

// The time is shown only if it is long.
const LONG_SECONDS = 5;

export class ThinkingSign {
  #time = element('span');
  #dots = element('span', { className: 'dots' }, ' …');
  #node = element('p', { className: 'note thinking' }, 'Thinking', this.#dots, this.#time);
  #since = 0;
  #timer = 0;

  /** Shows the sign at the end of an element. The time continues if the sign is already shown. */
  show(parent) {
    if (!this.#timer) {
      this.#since = Date.now();
      this.#tick();
      this.#timer = setInterval(() => this.#tick(), 1000);
    }
    if (parent.lastChild !== this.#node) parent.append(this.#node);
  }

  hide() {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#node.remove();
  }

  #tick() {
    const seconds = Math.floor((Date.now() - this.#since) / 1000);
    this.#time.textContent = seconds < LONG_SECONDS ? '' : ` ${seconds} s`;
  }
}
