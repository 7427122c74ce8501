// One call of a tool: its arguments, its progress, its result, and the conversation of a sub-agent that it runs.

import { element, showInvisible } from './elements.js';
import { contentText, resultWords } from './words.js';

// A longer result is shown in full only on request.
const SHOWN_CHARACTERS = 10_000;

export class ToolCard {
  #status = element('span', { className: 'status' });
  #arguments = element('div', { className: 'arguments' });
  #progress = element('p', { className: 'progress', hidden: true });
  #output = element('div', { className: 'output' });
  #nested = element('div', { className: 'nested', hidden: true });
  #name = element('span', { className: 'tool' });
  #makeConversation;
  #conversation = null;
  #text = '';

  /** `makeConversation(root)` creates a view of the events of a sub-agent. */
  constructor(name, makeConversation) {
    this.#makeConversation = makeConversation;
    this.#name.textContent = name;
    const summary = element('summary', {}, this.#name, ' ', this.#status);
    this.node = element(
      'details',
      { className: 'card' },
      summary,
      this.#arguments,
      this.#progress,
      this.#nested,
      this.#output,
    );
  }

  #say(words, state) {
    this.#status.textContent = words;
    this.node.dataset.state = state;
  }

  addArguments(text) {
    this.#text += text;
    this.#say('is being called', 'open');
  }

  setArguments(text) {
    this.#text = text;
    this.#arguments.replaceChildren(argumentList(text));
    if (!this.node.dataset.state || this.node.dataset.state === 'open') this.#say('', 'waits');
  }

  end() {
    this.setArguments(this.#text);
  }

  asksForApproval() {
    this.#say('waits for your approval', 'asks');
  }

  start() {
    this.#say('runs', 'runs');
  }

  progress(data) {
    const text = typeof data === 'string' ? data : Object.entries(data ?? {})
      .map(([key, value]) => `${key.replaceAll('_', ' ')}: ${typeof value === 'object' ? JSON.stringify(value) : value}`)
      .join(', ');
    this.#progress.hidden = false;
    this.#progress.textContent = text;
    this.#say('runs', 'runs');
  }

  /** The conversation of the sub-agent that this call runs. */
  conversation() {
    if (!this.#conversation) {
      this.#nested.hidden = false;
      this.node.open = true;
      this.#conversation = this.#makeConversation(this.#nested);
    }
    return this.#conversation;
  }

  suspend() {
    this.#say('waits', 'asks');
  }

  output({ kind, content }) {
    const kindOrOk = kind ?? 'ok';
    this.#say(resultWords(kindOrOk), kindOrOk === 'ok' ? 'ok' : 'failed');
    this.#progress.hidden = true;
    if (this.#conversation) this.node.open = false;
    this.#output.replaceChildren(longText(contentText(content)));
  }

  interrupted() {
    if (this.node.dataset.state !== 'ok') this.#say('was not run', 'failed');
  }

  /** Resets the card before the events of its run are shown again. */
  reset() {
    this.#conversation = null;
    this.#nested.replaceChildren();
    this.#nested.hidden = true;
    this.#output.replaceChildren();
    this.#progress.hidden = true;
    this.#say('', 'waits');
  }
}

/** The arguments of a call, decoded and exact. A value that is not a JSON object is shown as it is. */
export function argumentList(text) {
  let decoded;
  try {
    decoded = JSON.parse(text || '{}');
  } catch {
    decoded = null;
  }
  if (decoded === null || typeof decoded !== 'object' || Array.isArray(decoded)) {
    return element('pre', { className: 'value' }, showInvisible(text));
  }
  const list = element('dl');
  for (const [key, value] of Object.entries(decoded)) {
    const shown = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
    const pre = element('pre', { className: 'value', tabindex: '0' }, showInvisible(shown));
    list.append(element('dt', {}, showInvisible(key)), element('dd', {}, pre));
  }
  return list;
}

function longText(text) {
  const pre = element('pre', { className: 'value', tabindex: '0' }, text.slice(0, SHOWN_CHARACTERS));
  if (text.length <= SHOWN_CHARACTERS) return pre;
  const button = element('button', { type: 'button' }, `Show all ${text.length} characters`);
  button.addEventListener('click', () => {
    pre.textContent = text;
    button.remove();
  });
  return element('div', {}, pre, button);
}
