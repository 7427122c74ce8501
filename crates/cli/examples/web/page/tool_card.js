// One call of a tool: its arguments, its progress, its result, and the conversation of a sub-agent that it runs.

import { argumentList } from './argument_list.js';
import { element } from './elements.js';
import { textBox } from './text_box.js';
import { exactText, prose } from './visible_text.js';
import { contentText, resultWords } from './words.js';

export class ToolCard {
  #status = element('span', { className: 'status' });
  #arguments = element('div', { className: 'arguments' });
  #progress = element('p', { className: 'progress exact', hidden: true });
  #output = element('div', { className: 'output' });
  #nested = element('div', { className: 'nested', hidden: true });
  #name = element('span', { className: 'tool exact' });
  #makeConversation;
  #conversation = null;
  #text = '';

  /** `makeConversation(root)` creates a view of the events of a sub-agent. */
  constructor(name, makeConversation) {
    this.#makeConversation = makeConversation;
    this.#name.append(exactText(name));
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
    if (!this.hasResult()) this.#say('waits for your approval', 'asks');
  }

  hasResult() {
    return ['ok', 'failed'].includes(this.node.dataset.state);
  }

  /** Whether the call, or a call of the sub-agent that it runs, waits for approval. */
  isWaiting() {
    return ['asks', 'suspended'].includes(this.node.dataset.state);
  }

  /** The call may be running again, after it has waited. */
  resume() {
    if (this.isWaiting()) this.#say('', 'waits');
  }

  start() {
    this.#say('runs', 'runs');
  }

  progress(data) {
    const text = typeof data === 'string' ? data : Object.entries(data ?? {})
      .map(([key, value]) => `${key.replaceAll('_', ' ')}: ${typeof value === 'object' ? JSON.stringify(value) : value}`)
      .join(', ');
    this.#progress.hidden = false;
    this.#progress.replaceChildren(exactText(text));
    this.#say('runs', 'runs');
  }

  /** The conversation of the sub-agent that this call runs. */
  conversation() {
    if (!this.#conversation) {
      this.#nested.hidden = false;
      this.node.open = !this.hasResult();
      this.#conversation = this.#makeConversation(this.#nested);
    }
    return this.#conversation;
  }

  /** The sub-agent that the call runs waits for the approval of a call. */
  suspend() {
    if (!this.hasResult()) this.#say('waits for your approval', 'suspended');
  }

  output({ kind, content }) {
    const kindOrOk = kind ?? 'ok';
    // A call without approval has not started.
    const isGivenUp = kindOrOk === 'interrupted' && this.node.dataset.state === 'asks';
    this.#say(isGivenUp ? 'was not run' : resultWords(kindOrOk), kindOrOk === 'ok' ? 'ok' : 'failed');
    this.stop();
    this.#progress.hidden = true;
    if (this.#conversation) this.node.open = false;
    this.#output.replaceChildren(textBox(contentText(content), prose));
  }

  interrupted() {
    if (this.node.dataset.state !== 'ok') this.#say('was not run', 'failed');
    this.stop();
  }

  /** Removes the signs that more will follow. */
  stop() {
    this.#conversation?.stop();
  }

  /** Resets the card before the events of its run are shown again. */
  reset() {
    this.stop();
    this.#conversation = null;
    this.#nested.replaceChildren();
    this.#nested.hidden = true;
    this.#output.replaceChildren();
    this.#progress.hidden = true;
    this.#say('', 'waits');
  }
}
