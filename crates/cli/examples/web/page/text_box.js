// A text in a box. A long text is shown in full only on request.

import { element } from './elements.js';

const SHOWN_CHARACTERS = 10_000;

/** The start of a text, at most this long. No character is cut in two. */
export function start(text, limit) {
  if (text.length <= limit) return text;
  const isCutInTwo = /^[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(limit - 1, limit + 1));
  return text.slice(0, isCutInTwo ? limit - 1 : limit);
}

/**
 * A box for `length` characters. `show(limit)` shows the first `limit` of them at most; `className` is added to the
 * box.
 */
export function box(length, className, show) {
  const pre = element('pre', { className: `value ${className}`.trim(), tabindex: '0' });
  if (length <= SHOWN_CHARACTERS) {
    pre.append(show(length));
    return pre;
  }
  pre.classList.add('cut');
  pre.append(show(SHOWN_CHARACTERS));
  const button = element('button', { type: 'button' }, `Show all ${length} characters`);
  button.addEventListener('click', () => {
    pre.classList.remove('cut');
    pre.replaceChildren(show(length));
    button.remove();
  });
  return element('div', {}, pre, button);
}

/** A box for a text. `show(text)` makes it visible. */
export const textBox = (text, show, className = '') =>
  box(text.length, className, (limit) => show(start(text, limit)));

/** Whether a box in this element does not show all of its text. */
export const isCut = (node) => node.querySelector('.value.cut') !== null;
