// Shows items of a history and events of runs, in the order in which they arrive.
//
// A run looks the same whether its events were received one by one, started with a snapshot, or are read from the
// store: a complete turn is shown from its items.

import { element } from './elements.js';
import { MarkdownWriter } from './markdown.js';
import { ThinkingSign } from './thinking_sign.js';
import { ToolCard } from './tool_card.js';
import { exactText, prose } from './visible_text.js';
import { contentText, endWords, errorWords, isGoodEnd, usageWords } from './words.js';

const APPENDED = {
  corrective: 'The reply could not be used, and the model was asked to correct it',
  continuation: 'The model was cut off and continues',
  nudge: 'The model was asked to do more',
  stop_hook: 'A hook asked the model to continue',
};

// Whether the model is thinking after an event: nothing else on the page changes until its next words or calls. Other
// events change nothing about it.
const THINKS = {
  appended: true,
  turn_started: true,
  reasoning_delta: true,
  retracted: true,
  continued: true,
  text_delta: false,
  refusal_delta: false,
  tool_call_start: false,
  tool_started: false,
  tool_suspended: false,
  turn_complete: false,
  approval_requested: false,
  retrying: false,
  finished: false,
};

export class Conversation {
  #root;
  #options;
  #turn = null;
  #retry = null;
  #touched = new Set();
  #thinking = new ThinkingSign();

  /**
   * `options.cards` are the calls by their ids; several conversations of one session share it.
   * `options.forkAt(number)` forks before an entry, `options.say(...content)` informs users of screen
   * readers, `options.price` is the price of tokens. The conversation of a sub-agent has only `options.isNested`.
   */
  constructor(root, options = {}) {
    this.#root = root;
    this.#options = { cards: new Map(), ...options };
  }

  /** Clears the conversation before the events of the run are shown again. */
  clear() {
    this.stop();
    this.#root.replaceChildren();
    this.#turn = null;
    for (const card of this.#touched) {
      if (card.node.isConnected) card.reset();
    }
    this.#touched.clear();
  }

  /** Shows that the model is thinking. */
  think() {
    this.#thinking.show(this.#root);
  }

  /** Removes the signs that more will follow, also from the conversations of sub-agents. */
  stop() {
    this.#endRetry();
    this.#thinking.hide();
    for (const card of this.#touched) card.stop();
  }

  /** Shows an entry of the store. */
  addEntry({ number, entry }) {
    switch (entry.type) {
      case 'rewritten':
        this.#note(entry.why === 'tombstoned'
          ? 'The messages above were withdrawn, and are no longer sent to the model'
          : 'The conversation was shortened for the model');
        break;
      case 'appended':
      case 'pending':
        for (const { path, call_id: id, name } of entry.calls) {
          if (path?.length) this.#card(path[0]).suspend();
          else this.#card(id, name).asksForApproval();
        }
        break;
      case 'resumed':
        for (const card of this.#touched) card.resume();
        break;
      case 'nested':
      case 'other':
        break;
      default:
        this.#item(entry, number);
    }
  }

  /** Shows how a run ended, and its usage. */
  addEnd(outcome) {
    const usage = usageWords(outcome, this.#options.price);
    const how = element('span', { className: 'how' }, prose(endWords(outcome)));
    const lines = isGoodEnd(outcome)
      ? [element('p', { className: 'end', 'data-reason': outcome.reason }, how, usage && ` · ${usage}`)]
      : [element('p', { className: 'end bad' }, how), element('p', { className: 'end' }, usage)];
    this.#root.append(...lines);
  }

  /** Shows an event of a sub-agent, if the call that runs it is shown. */
  addNested({ call_id: id, event }) {
    const card = this.#options.cards.get(id);
    if (!card) return;
    this.#touched.add(card);
    card.conversation().apply(event);
  }

  apply(event) {
    if (!['usage_update', 'retrying'].includes(event.type)) this.#endRetry();
    this.#show(event);
    if (this.#isThinkingAfter(event)) this.think();
    else if (THINKS[event.type] === false) this.#thinking.hide();
  }

  /** The model reads the results of its calls once all of them have one. */
  #isThinkingAfter({ type }) {
    if (type !== 'tool_output') return THINKS[type];
    return [...this.#touched].every((card) => card.hasResult());
  }

  #show(event) {
    switch (event.type) {
      case 'appended': {
        const words = APPENDED[event.why];
        if (words) this.#note(words);
        else for (const item of event.items) this.#item(item);
        break;
      }
      case 'turn_started':
        this.#turn = { blocks: new Map(), node: this.#root.appendChild(element('div', { className: 'turn' })) };
        break;
      case 'text_delta':
      case 'refusal_delta':
        this.#block(`text ${event.index}`, () => textBlock()).write(event.text);
        break;
      case 'reasoning_delta':
        this.#block(`reasoning ${event.index}`, () => reasoningBlock()).write(event.text);
        break;
      case 'tool_call_start':
        this.#turnNode().append(this.#card(event.call_id, event.name).node);
        break;
      case 'tool_call_args_delta':
        this.#card(event.call_id).addArguments(event.delta);
        break;
      case 'tool_call_end':
        this.#card(event.call_id).end();
        break;
      case 'retrying':
        this.#showRetry(event);
        break;
      case 'retracted':
        this.#turnNode().replaceChildren();
        if (this.#turn) this.#turn.blocks.clear();
        this.#note(`The answer broke off and begins again: ${event.why}`);
        break;
      case 'turn_complete':
        this.#completeTurn(event.turn);
        break;
      case 'approval_requested':
        this.#card(event.call_id, event.name).asksForApproval();
        break;
      case 'tool_started':
        this.#card(event.call_id, event.name).start();
        this.#options.say?.(exactText(event.name), ' runs.');
        break;
      case 'tool_progress':
        this.#card(event.call_id, event.name).progress(event.data);
        break;
      case 'tool_suspended':
        this.#card(event.call_id, event.name).suspend();
        break;
      case 'tool_output':
        this.#card(event.call_id, event.name).output(event);
        break;
      case 'nested':
        this.#card(event.call_id, event.name).conversation().apply(event.event);
        break;
      case 'rewritten':
        if (event.from < event.to) this.addEntry({ entry: event });
        break;
      case 'finished':
        this.#finish(event.outcome);
        break;
      default:
        // Events of later versions, and events that are not shown.
        break;
    }
  }

  #finish(outcome) {
    this.#turn?.blocks.forEach((block) => block.end());
    this.#turn = null;
    for (const card of this.#touched) {
      if (!card.hasResult() && !card.isWaiting()) card.interrupted();
    }
    this.addEnd(outcome);
    const isDone = outcome.reason === 'completed';
    this.#options.say?.(prose(isDone ? `Answer: ${outcome.text}` : endWords(outcome)));
  }

  #turnNode() {
    return this.#turn?.node ?? this.#root;
  }

  /** The block of the turn that these deltas belong to. */
  #block(key, make) {
    if (!this.#turn) this.apply({ type: 'turn_started' });
    let block = this.#turn.blocks.get(key);
    if (!block) {
      block = make();
      this.#turn.blocks.set(key, block);
      this.#turn.node.append(block.node);
    }
    return block;
  }

  /** Shows the items of a turn. Streamed elements stay where they are. */
  #completeTurn(turn) {
    const node = this.#turnNode();
    const blocks = [...(this.#turn?.blocks.values() ?? [])];
    const streamed = blocks.map((block) => block.text());
    const said = turn.items.filter((item) => ['text', 'reasoning'].includes(item.type) && item.text);
    const isWhole = streamed.length === said.length && said.every((item, at) => streamed[at] === item.text);
    if (isWhole && blocks.length > 0) {
      blocks.forEach((block) => block.end());
      for (const item of turn.items) {
        if (item.type === 'tool_call') this.#card(item.call_id, item.name).setArguments(item.arguments);
      }
      if (turn.stop_reason === 'interrupted') this.#stopTurn(turn, node);
    } else {
      node.replaceChildren();
      for (const item of turn.items) this.#item(item, undefined, node);
    }
    this.#turn = null;
  }

  /** Shows that a turn was interrupted: the calls in it are void. */
  #stopTurn(turn, node) {
    for (const { type, call_id: id, name } of turn.items) {
      if (type !== 'tool_call') continue;
      const card = this.#card(id, name);
      card.interrupted();
      this.#touched.delete(card);
    }
    node.append(element('p', { className: 'note' }, 'Stopped here'));
  }

  /** Shows one item, of the store or of an event. */
  #item(item, number, parent = this.#root) {
    if (item.tombstone) return;
    switch (item.type) {
      case 'user':
        parent.append(this.#userMessage(contentText(item.content), number));
        break;
      case 'text':
      case 'reasoning': {
        if (!item.text) break;
        const block = item.type === 'text' ? textBlock() : reasoningBlock();
        block.write(item.text);
        block.end();
        parent.append(block.node);
        if (item.interrupted) parent.append(element('p', { className: 'note' }, 'Stopped here'));
        break;
      }
      case 'tool_call': {
        const card = this.#card(item.call_id, item.name);
        card.setArguments(item.arguments);
        parent.append(card.node);
        if (item.interrupted) card.interrupted();
        break;
      }
      case 'tool_result': {
        const isKnown = this.#options.cards.has(item.call_id);
        const card = this.#card(item.call_id, item.name);
        card.output(item);
        if (!isKnown) parent.append(card.node);
        break;
      }
      default:
        break;
    }
  }

  #userMessage(text, number) {
    const words = element('div', { className: 'words' }, prose(text));
    const message = element('article', { className: 'user', 'aria-label': this.#options.isNested ? 'Task' : 'You' }, words);
    if (number !== undefined && this.#options.forkAt) {
      const forkAt = () => this.#options.forkAt(number, text);
      message.append(element('button', { type: 'button', className: 'quiet', onclick: forkAt }, 'Ask differently'));
    }
    return message;
  }

  /** The card of a call, which is created if it does not exist. */
  #card(id, name = 'tool') {
    let card = this.#options.cards.get(id);
    if (!card) {
      card = new ToolCard(name, (root) => new Conversation(root, { isNested: true }));
      this.#options.cards.set(id, card);
      if (!this.#turn) this.#root.append(card.node);
      else this.#turn.node.append(card.node);
    }
    this.#touched.add(card);
    return card;
  }

  #note(words) {
    this.#root.append(element('p', { className: 'note' }, prose(words)));
  }

  #showRetry({ attempt, delay_ms: delay, error }) {
    this.#endRetry();
    const node = element('p', { className: 'note retry' });
    const end = Date.now() + delay;
    const tick = () => {
      const seconds = Math.ceil((end - Date.now()) / 1000);
      const next = seconds > 0 ? `Next one in ${seconds} s.` : 'Trying again.';
      const why = error ? errorWords(error) : 'no answer';
      node.replaceChildren(prose(`Attempt ${attempt} failed (${why}). ${next}`));
      if (seconds <= 0) this.think();
    };
    tick();
    this.#retry = { node, timer: setInterval(tick, 1000) };
    this.#turnNode().append(node);
    this.#options.say?.(...node.cloneNode(true).childNodes);
  }

  #endRetry() {
    if (!this.#retry) return;
    clearInterval(this.#retry.timer);
    this.#retry.node.remove();
    this.#retry = null;
  }
}

function textBlock() {
  const node = element('div', { className: 'answer' });
  const writer = new MarkdownWriter(node);
  return { node, write: (text) => writer.write(text), end: () => writer.end(), text: () => writer.text };
}

function reasoningBlock() {
  const words = element('div', { className: 'words' });
  const node = element('details', { className: 'reasoning' }, element('summary', {}, 'Reasoning'), words);
  let text = '';
  const write = (more) => {
    text += more;
    words.append(prose(more));
  };
  return { node, write, end: () => {}, text: () => text };
}
