// The page: one session at a time.

import { ApprovalCard } from './approval_card.js';
import { Conversation } from './conversation.js';
import { byId, element } from './elements.js';
import { EventReader } from './event_reader.js';
import { askToGiveUp, hideQuestion } from './give_up_question.js';
import { readGrants, showGrants } from './grants_dialog.js';
import { get, post, randomId, sessionPath } from './server.js';
import { SessionList } from './session_list.js';
import { showTrace } from './trace_dialog.js';
import { exactText, prose } from './visible_text.js';
import { contentText, errorWords, isFinal, isWorthRetrying } from './words.js';

const PAGE = 100;

// Questions that show what the agent can do, also to the offline model.
const EXAMPLES = [
  'How many lines of Rust are in src?',
  'What is (2 + 3) * 4?',
  'Write hello to notes.txt',
  'Research where Toolkit is used',
];

const about = { model: null, price: null, can_regenerate: false, has_traces: false };
const list = new SessionList((id) => go(id));

/** The open session. */
let open = null;

class OpenSession {
  #reader;
  #cards = new Map();
  #live;
  /** The number of the first entry that is shown, and of the first that is not yet. */
  #first = 0;
  #startsAt = null;
  #run = null;
  /** Whether this connection has read the shown run to its end. */
  #hasEnded = false;
  /** Whether its last event has reported how it ended. */
  #hasFinished = false;
  /** The state of the session when no run is active: `idle`, `pending` or `unfinished`. */
  #state = 'idle';
  /** How the last run ended, if it is known. */
  #outcome = null;
  /** Messages that were sent and have not reached the model yet. */
  #waiting = new Map();
  /** The id of the last message that was sent while the model worked. */
  #steered;
  #todo = [];
  isRunning = false;

  constructor(id) {
    this.id = id;
    for (const name of ['history', 'live', 'approvals', 'waiting']) byId(name).replaceChildren();
    byId('older').hidden = true;
    byId('unfinished').hidden = true;
    byId('show-grants').hidden = true;
    hideQuestion();
    showProblem('');
    this.#live = this.#conversation(byId('live'));
    this.#reader = new EventReader(id, {
      snapshot: (snapshot) => this.#inOrder(() => this.#onSnapshot(snapshot)),
      event: (event) => this.#inOrder(() => follow(() => this.#apply(event))),
      ended: ({ error }) => this.#inOrder(() => this.#onEnded(error)),
      connected: () => {
        byId('connection').textContent = '';
        // Runs may have started and ended meanwhile.
        this.#inOrder(() => { this.#hasEnded = false; });
      },
      disconnected: (why) => { byId('connection').textContent = why; },
    });
  }

  close() {
    this.#reader.close();
    this.#live.stop();
    open = null;
  }

  /** Performs actions one after the other: a snapshot waits for earlier messages, and events wait for both. */
  async #inOrder(action) {
    this.#todo.push(action);
    if (this.#todo.length > 1) return;
    while (this.#todo.length && open === this) {
      try {
        const waits = this.#todo[0]();
        if (waits) await waits;
      } catch (error) {
        showProblem(error.message);
      }
      this.#todo.shift();
    }
  }

  #conversation(root) {
    return new Conversation(root, {
      cards: this.#cards,
      price: about.price,
      say,
      forkAt: (number, text) => this.fork(number, text),
    });
  }

  async #onSnapshot({ run, starts_at: startsAt, events, pending }) {
    const isNext = this.#hasEnded && run && run !== this.#run && !(await this.#wasRewritten(startsAt));
    if (isNext) {
      // The live items are history now, and stay as they are.
      const history = byId('history');
      history.append(...byId('live').childNodes);
      this.#live = this.#conversation(byId('live'));
    } else if (run !== this.#run || this.#startsAt !== startsAt) {
      await this.#loadHistory(startsAt);
    }
    if (run && run !== this.#run) showProblem('');
    this.#startsAt = startsAt;
    [this.#run, this.#hasEnded] = [run, false];
    this.#live.clear();
    if (run) this.#live.think();
    this.#setRunning(Boolean(run));
    follow(() => events.forEach((event) => this.#apply(event)));
    // An active run requests approval when it ends.
    if (run || !pending.length) this.#endApprovals();
    else this.#showApprovals(pending);
    welcome(startsAt === 0 && !run);
    this.refreshGrants();
  }

  /** Whether shown items were withdrawn just before this entry. */
  async #wasRewritten(before) {
    const { messages } = await get(sessionPath(this.id, `messages?before=${before}&limit=1`));
    return messages.at(-1)?.entry.type === 'rewritten';
  }

  #apply(event) {
    if (event.type === 'appended') this.#taken(event.id, event.items);
    if (event.type === 'appended' || event.type === 'turn_started') this.#endApprovals();
    this.#live.apply(event);
    if (changesGrants(event)) this.refreshGrants();
    this.#hasFinished = event.type === 'finished';
    if (event.type === 'finished') {
      this.#outcome = event.outcome;
      this.#giveBack(event.outcome.undelivered ?? []);
      if (event.outcome.pending?.length) this.#showApprovals(event.outcome.pending);
    }
  }

  async #onEnded(error) {
    // The partial last turn of an aborted run is not stored: the next run shows the session again.
    this.#hasEnded = this.#hasFinished;
    if (!this.#hasFinished) {
      this.#live.stop();
      this.#outcome = null;
      if (error) showProblem(`The run ended unexpectedly: ${errorWords(error)}`);
    }
    refreshList();
    this.refreshGrants();
    this.#state = (await get(sessionPath(this.id, 'messages?limit=1'))).state;
    this.#setRunning(false);
  }

  #setRunning(isRunning) {
    this.isRunning = isRunning;
    this.#showUnfinished();
    byId('stop').hidden = !isRunning;
    byId('stop-answer').hidden = !isRunning;
    byId('queue').hidden = !isRunning;
    byId('send').textContent = isRunning ? 'Steer now' : 'Send';
    this.#showRegenerate();
    document.body.dataset.running = isRunning;
  }

  /** Offers to continue, or to try again if that may help. */
  #showUnfinished() {
    const outcome = this.#outcome ?? {};
    const isRetry = isWorthRetrying(outcome);
    // The answer that was cut off is replaced.
    const isCutOff = this.#state === 'idle' && isRetry && about.can_regenerate;
    const isOffered = !this.isRunning && (isCutOff || this.#state === 'unfinished' && !isFinal(outcome));
    byId('unfinished').hidden = !isOffered;
    const words = isRetry ? 'The same request may succeed now.' : 'The last answer was not finished.';
    byId('unfinished-words').textContent = words;
    byId('continue').textContent = isRetry ? 'Try again' : 'Continue';
  }

  /** An answer whose calls wait for approval cannot be replaced. */
  #showRegenerate() {
    const isEmpty = this.#startsAt === 0 && !this.#run;
    const isOffered = about.can_regenerate && !this.isRunning && !isEmpty;
    byId('regenerate').hidden = !isOffered || byId('approvals').hasChildNodes();
  }

  #showApprovals(pending) {
    // Each request contains the earlier verdicts, because any of several servers may receive it.
    const earlier = [];
    const cards = pending.map((call) => new ApprovalCard(call, async (isApproved, reason, always) => {
      const path = sessionPath(this.id, isApproved ? 'approve' : 'deny');
      const verdict = { call, is_approved: isApproved, reason: reason || null, always };
      const sent = post(path, { call, reason: verdict.reason, always, earlier: [...earlier] });
      earlier.push(verdict);
      return sent.catch((error) => {
        earlier.splice(earlier.indexOf(verdict), 1);
        throw error;
      });
    }));
    follow(() => byId('approvals').replaceChildren(...cards.map((card) => card.node)));
    this.#showRegenerate();
    showWaiting();
    say(exactText(pending[0].name), ' waits for your approval.');
    // The focus stays where the user types, so that no key press answers the question.
    if (document.activeElement === document.body) cards[0].focus();
  }

  /** No call waits for approval any more. */
  #endApprovals() {
    byId('approvals').replaceChildren();
    hideQuestion();
    this.#showRegenerate();
    showWaiting();
  }

  /** Offers the list of the calls that are always allowed, if there are any. */
  async refreshGrants() {
    try {
      const grants = await readGrants(this.id);
      if (open !== this) return;
      byId('show-grants').hidden = grants.length === 0;
      byId('show-grants').textContent = `Always allowed: ${grants.length}`;
    } catch (error) {
      if (open === this) showProblem(error.message);
    }
  }

  /** Shows the last page of messages before an entry. */
  async #loadHistory(before) {
    byId('history').replaceChildren();
    this.#cards.clear();
    this.#outcome = null;
    this.#first = before;
    const ends = await this.loadOlder();
    this.#outcome = ends.find((end) => end.at === before)?.outcome ?? null;
    scrollToNewest();
  }

  /** Shows one more page, and returns the ends of its runs. The visible items keep their position. */
  async loadOlder() {
    if (this.#first === 0) return [];
    const path = sessionPath(this.id, `messages?before=${this.#first}&limit=${PAGE}`);
    const { messages, ends, nested, state } = await get(path);
    if (open !== this) return [];
    const page = element('div');
    const conversation = this.#conversation(page);
    for (const message of messages) {
      conversation.addEntry(message);
      const outcome = ends.find((end) => end.at === message.number + 1)?.outcome;
      if (outcome) conversation.addEnd(outcome);
    }
    nested.forEach((event) => conversation.addNested(event));
    conversation.stop();
    const scroll = byId('scroll');
    const fromEnd = scroll.scrollHeight - scroll.scrollTop;
    byId('history').prepend(page);
    showWaiting();
    scroll.scrollTop = scroll.scrollHeight - fromEnd;
    this.#first = messages[0]?.number ?? 0;
    byId('older').hidden = this.#first === 0;
    this.#state = state;
    return ends;
  }

  // Actions of the user.

  /** Sends a message. The server refuses it if calls wait for approval, unless they may be given up. */
  async send(text, isAfterwards, mayGiveUp) {
    if (this.isRunning && !isAfterwards && await this.#steer(text) !== null) return;
    // Sending the same message again does not start a second run.
    const body = mayGiveUp ? { text, waiting_calls: 'give_up' } : { text };
    const { run, is_queued: isQueued } = await startOnce(this.id, body);
    if (isQueued) this.#waits(run, text, 'Queued');
    else scrollToNewest();
  }

  /** Sends input to the model while it works, and returns its id. If the run has just ended, nothing is sent. */
  async #steer(text) {
    try {
      const { id } = await post(sessionPath(this.id, 'steer'), { text });
      this.#waits(id, text, 'Will be sent with the next request');
      this.#steered = id;
      return id;
    } catch (error) {
      if (error.status === 409) return null;
      throw error;
    }
  }

  async resume() {
    if (this.#state === 'idle') await this.regenerate();
    else await post(sessionPath(this.id, 'runs'), {});
  }

  async stop() {
    await post(sessionPath(this.id, 'stop'), {});
  }

  /** Ends the model's answer, but not its tools. A message in the input field is sent, and answered next. */
  async stopAnswer() {
    const text = byId('text').value.trim();
    if (text) {
      if (await this.#steer(text) === null) return;
      byId('text').value = '';
    }
    // If the model answers the last message already, the server does not end the answer.
    const last = this.#waiting.has(this.#steered) ? this.#steered : undefined;
    if (text && last === undefined) return;
    await post(sessionPath(this.id, 'stop'), { answer_only: true, answer_next: last });
  }

  async regenerate() {
    await post(sessionPath(this.id, 'regenerate'), {});
  }

  async fork(at, text) {
    const { session } = await post(sessionPath(this.id, 'fork'), { at: at ?? null });
    go(session);
    if (text) byId('text').value = text;
    byId('text').focus();
  }

  #waits(id, text, how) {
    const node = element('li', {}, `${how}: `, prose(text));
    this.#waiting.set(id, { node, text });
    byId('waiting').append(node);
  }

  /** A message has reached the model. */
  #taken(id, items) {
    const words = items.filter((item) => item.type === 'user').map((item) => contentText(item.content));
    for (const [key, { node, text }] of this.#waiting) {
      if (key === id || words.includes(text)) {
        node.remove();
        this.#waiting.delete(key);
      }
    }
  }

  /** Input that came too late is put back into the input field. */
  #giveBack(undelivered) {
    for (const { id, items } of undelivered) {
      this.#taken(id, []);
      const words = items.map((item) => contentText(item.content)).join('\n');
      byId('text').value = [byId('text').value, words].filter(Boolean).join('\n');
    }
  }
}

/** Whether a call was always allowed, or no longer is, here or by a sub-agent. */
function changesGrants(event) {
  if (event.type === 'nested') return changesGrants(event.event);
  return event.type === 'grant_added' || event.type === 'grant_revoked';
}

let unsent = null;

/** Starts a run. If the connection was lost, the same message is sent again with the same key. */
async function startOnce(id, body) {
  const text = JSON.stringify([id, body]);
  if (unsent?.text !== text) unsent = { text, key: randomId() };
  const started = await post(sessionPath(id, 'runs'), body, { 'idempotency-key': unsent.key });
  unsent = null;
  return started;
}

/** Whether the end of the conversation is visible. Then it stays visible while more content arrives. */
let isAtEnd = true;
let willScroll = false;

/** Changes the conversation, and keeps its end visible if it was visible. */
function follow(change) {
  change();
  if (!isAtEnd || willScroll) return;
  // Scrolls once per frame, because computing the position of the end is slow.
  willScroll = true;
  requestAnimationFrame(() => {
    willScroll = false;
    scrollToNewest();
  });
}

function scrollToNewest() {
  isAtEnd = true;
  byId('scroll').scrollTop = byId('scroll').scrollHeight;
}

function say(...content) {
  byId('spoken').replaceChildren(...content);
}

function showProblem(words) {
  byId('problem').replaceChildren(prose(words));
}

/** Says of each run that has ended with a waiting call whether it still waits. */
function showWaiting() {
  const isWaiting = byId('approvals').hasChildNodes();
  const lines = [...byId('column').querySelectorAll('.end[data-reason=pending] .how')];
  for (const line of lines) {
    const waits = isWaiting && line === lines.at(-1);
    line.textContent = waits ? 'Waits for your approval' : 'Waited for your approval';
  }
}

function welcome(isNew) {
  byId('welcome').hidden = !isNew;
  if (!isNew || !about.model) return;
  const { model, is_scripted: isScripted, has_tools: hasTools } = about.model;
  const reads = hasTools ? ' It can read the working directory of the server.' : '';
  byId('welcome-words').textContent = isScripted
    ? 'This model is scripted: its text follows rules, and the results of its tools are real. If an API key is set '
      + 'in the environment, a real model answers.'
    : `${model} answers.${reads}`;
  byId('examples').replaceChildren(...(hasTools ? EXAMPLES.map(exampleButton) : []));
}

function exampleButton(question) {
  const button = element('button', { type: 'button' }, question);
  button.addEventListener('click', async () => {
    button.disabled = true;
    await attempt(() => open.send(question, false));
    button.disabled = false;
  });
  return element('li', {}, button);
}

/**
 * Performs an action of the user, and shows the error if it fails. If the action would give up calls that wait for
 * approval, asks the user first: `giveUp()` performs it then.
 */
async function attempt(action, giveUp) {
  showProblem('');
  hideQuestion();
  try {
    await action();
  } catch (error) {
    if (error.waitingCalls && giveUp) askToGiveUp(error.waitingCalls, giveUp);
    else showProblem(error.message);
    return false;
  }
  return true;
}

function go(id) {
  const hash = `#${id}`;
  if (location.hash !== hash) location.hash = hash;
  else openSession();
}

// The session ids that the server accepts.
const ID = /^[A-Za-z0-9._-]{1,100}$/;

function openSession() {
  const asked = location.hash.slice(1);
  const id = ID.test(asked) ? asked : randomId();
  if (id !== asked) history.replaceState(null, '', `#${id}`);
  if (open?.id === id) return;
  open?.close();
  open = new OpenSession(id);
  toggleList(false);
  refreshList();
}

async function refreshList() {
  try {
    await list.show(open.id);
  } catch (error) {
    showProblem(error.message);
  }
  byId('title').replaceChildren(list.title() ?? 'New session');
}

function toggleList(isOpen) {
  document.body.dataset.list = isOpen ? 'open' : 'closed';
  byId('toggle-list').setAttribute('aria-expanded', String(isOpen));
}

// A longer message is refused by the server.
const MAX_BYTES = 8_000_000;

async function submit(isAfterwards, mayGiveUp = false) {
  const text = byId('text').value;
  if (!text.trim()) return;
  if (new Blob([JSON.stringify(text)]).size > MAX_BYTES) {
    showProblem('The message is too long: at most 8 MB can be sent.');
    return;
  }
  byId('text').value = '';
  const giveUp = () => submit(isAfterwards, true);
  const isSent = await attempt(() => open.send(text, isAfterwards, mayGiveUp), giveUp);
  // The typed text is never lost.
  if (!isSent) byId('text').value = [text, byId('text').value].filter(Boolean).join('\n');
}

byId('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  submit(false);
});
byId('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit(false);
  }
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && open?.isRunning && !document.querySelector('dialog[open]')) attempt(() => open.stop());
});
byId('queue').addEventListener('click', () => submit(true));
byId('stop').addEventListener('click', () => attempt(() => open.stop()));
byId('stop-answer').addEventListener('click', () => attempt(() => open.stopAnswer()));
byId('regenerate').addEventListener('click', () => attempt(() => open.regenerate()));
byId('continue').addEventListener('click', () => attempt(() => open.resume()));
byId('older').addEventListener('click', () => attempt(() => open.loadOlder()));
byId('fork').addEventListener('click', () => attempt(() => open.fork()));
byId('show-trace').addEventListener('click', () => attempt(() => showTrace(open.id)));
byId('show-grants').addEventListener('click', () => {
  const session = open;
  attempt(() => showGrants(session.id, () => session.refreshGrants()));
});
byId('new-session').addEventListener('click', () => {
  go(randomId());
  byId('text').focus();
});
document.querySelector('.skip').addEventListener('click', (event) => {
  // The address names the session.
  event.preventDefault();
  byId('text').focus();
});
byId('toggle-list').addEventListener('click', () => toggleList(document.body.dataset.list !== 'open'));
byId('newest').addEventListener('click', scrollToNewest);
byId('scroll').addEventListener('scroll', () => {
  const scroll = byId('scroll');
  const below = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
  isAtEnd = below < 60;
  byId('newest').hidden = below < 200;
});
window.addEventListener('hashchange', openSession);

await attempt(async () => {
  Object.assign(about, await get('/about'));
  const { model, is_scripted: isScripted } = about.model;
  byId('model').textContent = isScripted ? 'Scripted model: no key is set' : model;
  byId('model').classList.toggle('scripted', isScripted);
  byId('show-trace').hidden = !about.has_traces;
});
openSession();
