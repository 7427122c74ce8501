// The clients of the front ends, as a process: a line of JSON in, a line of JSON out, in order.
//
//   {"id": 1, "do": "read", "client": "ai6", "body": "…", "message": {…}}
//       the messages that a client builds from the body of a response; `message` is one that it already has
//   {"id": 2, "do": "read", "client": "ag_ui", "body": "…", "input": {…}}
//   {"id": 3, "do": "post", "client": "ai6", "messages": […], "trigger": "submit-message", …}
//       the request that a client posts
//   {"id": 4, "do": "reconnect", "client": "ai6", "chat_id": "c", "status": 204}
//   {"id": 5, "do": "chat", "client": "ai6", "api": "http://127.0.0.1:…", "steps": [{"send": "…"}, …]}
//   {"id": 6, "do": "agent", "client": "ag_ui", "url": "http://127.0.0.1:…", "steps": [{"send": "…"}, …]}
//       a conversation with a real server
//   {"id": 7, "do": "versions"}
//
// The answer has the `id`, `ok`, `error` if it is not ok, and `warnings` if the client reported any.

import { readFileSync } from 'node:fs';
import { format } from 'node:util';

const LIMIT = 10_000;
const MOST_REQUESTS = 20;

// Standard output carries answers and nothing else. The warnings of a client are part of its answer.
let warnings = [];
for (const name of ['log', 'info', 'debug']) console[name] = console.error;
console.warn = (...said) => {
  warnings.push(format(...said));
  console.error(...said);
};
process.on('uncaughtException', (error) => console.warn('uncaught:', error));
process.on('unhandledRejection', (error) => console.warn('unhandled:', error));

const { HttpAgent } = await import('@ag-ui/client');
const names = ['ai5_0_0', 'ai5', 'ai6_0_0', 'ai6', 'ai7'];
const sdks = {};
for (const name of names) sdks[name] = await import(name);

const textOf = (error) => String(error?.message ?? error);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function sdk(name) {
  if (!sdks[name]) throw new Error(`there is no client ${name}`);
  return sdks[name];
}

/** A response that is sent in pieces. */
function response(body, size = 1000, status = 200) {
  if (status === 204) return new Response(null, { status });
  if (typeof body !== 'string') throw new Error('there is no body');
  const bytes = new TextEncoder().encode(body);
  const stream = new ReadableStream({
    start(controller) {
      for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
      controller.close();
    },
  });
  return new Response(stream, { status, headers: { 'content-type': 'text/event-stream' } });
}

/** A request, in the form in which an answer reports it. */
function told(url, init) {
  const headers = Object.fromEntries(new Headers(init.headers));
  return { method: init.method, url: String(url), type: headers['content-type'] ?? null, headers, body: init.body ?? null };
}

/** The real `fetch`, which records the requests and the number of those that are still running. */
function notedFetch(requests, running) {
  return async (url, init) => {
    if (requests.length === MOST_REQUESTS) throw new Error(`more than ${MOST_REQUESTS} requests`);
    const { headers, type, ...request } = told(url, init);
    requests.push(request);
    running.count += 1;
    try {
      const response = await globalThis.fetch(url, init);
      request.status = response.status;
      return response;
    } finally {
      running.count -= 1;
    }
  };
}

// --- AI SDK ---

const API = 'http://localhost/api/chat';

/** Reads a stream of chunks to its end. */
async function readChunks({ readUIMessageStream }, stream, message) {
  let error = null;
  let last = message ?? null;
  let snapshots = 0;
  const errorChunks = [];
  const onError = (seen) => { error ??= textOf(seen); };
  const noted = new TransformStream({
    transform(chunk, controller) {
      if (chunk?.type === 'error') errorChunks.push(chunk.errorText);
      controller.enqueue(chunk);
    },
  });
  try {
    stream = stream.pipeThrough(noted);
    for await (const read of readUIMessageStream({ stream, message, terminateOnError: true, onError })) {
      last = read;
      snapshots += 1;
    }
  } catch (seen) {
    onError(seen);
  }
  const answer = { ok: error === null, error, message: last, snapshots };
  if (errorChunks.includes(error)) answer.error_chunk = error;
  return answer;
}

async function readAiSdk({ client, body, message, chunk_size }) {
  const { DefaultChatTransport } = sdk(client);
  const transport = new DefaultChatTransport({ api: API, fetch: async () => response(body, chunk_size) });
  const stream = await transport.sendMessages({ chatId: 'c', messages: [], trigger: 'submit-message' });
  return readChunks(sdk(client), stream, message);
}

async function postAiSdk({ client, chat_id = 'c', messages, trigger = 'submit-message', message_id, last_only, only_last, body }) {
  const { DefaultChatTransport } = sdk(client);
  let posted;
  const fetch = async (url, init) => {
    posted = told(url, init);
    return response('data: [DONE]\n\n');
  };
  const prepareSendMessagesRequest = last_only || only_last
    ? ({ id, messages, trigger, messageId }) => ({ body: { id, message: messages.at(-1), trigger, messageId } })
    : undefined;
  const transport = new DefaultChatTransport({ api: API, fetch, prepareSendMessagesRequest });
  await transport.sendMessages({ chatId: chat_id, messages, trigger, messageId: message_id, body });
  return { ok: true, ...posted };
}

async function reconnectAiSdk({ client, chat_id = 'c', status = 200, body = '', message, chunk_size }) {
  const { DefaultChatTransport } = sdk(client);
  let asked = {};
  const fetch = async (url, init) => {
    asked = { method: init.method, url: String(url) };
    return response(body, chunk_size, status);
  };
  const transport = new DefaultChatTransport({ api: API, fetch });
  try {
    const stream = await transport.reconnectToStream({ chatId: chat_id });
    if (stream === null) return { ok: true, ...asked, stream: false };
    return { ...asked, stream: true, ...(await readChunks(sdk(client), stream, message)) };
  } catch (error) {
    return { ok: false, error: textOf(error), ...asked };
  }
}

/** The state that a hook of React or Vue stores for a chat. */
class MemoryState {
  status = 'ready';
  error = undefined;
  snapshot = structuredClone;
  constructor(messages) { this.messages = messages; }
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (at, message) => { this.messages = this.messages.with(at, structuredClone(message)); };
}

const isApproval = (part) => part.state === 'approval-requested';

async function chatAiSdk({ client, api, chat_id = 'c', messages = [], steps = [], headers, automatic = true }, signal) {
  const version = sdk(client);
  const requests = [], errors = [], data = [], finishes = [], running = { count: 0 };
  let stopAfter = null;

  class Transport extends version.DefaultChatTransport {
    /** The stream, which the user stops after some chunks if a step requests that. */
    async sendMessages(options) {
      const stream = await super.sendMessages(options);
      let left = stopAfter;
      stopAfter = null;
      return left === null ? stream : stream.pipeThrough(new TransformStream({
        async transform(chunk, controller) {
          controller.enqueue(chunk);
          left -= 1;
          // The received data is applied before the stop.
          if (left === 0) {
            await pause(10);
            void chat.stop();
          }
        },
      }));
    }
  }
  class Chat extends version.AbstractChat {
    constructor({ messages, ...options }) { super({ ...options, state: new MemoryState(messages) }); }
  }
  const chat = new Chat({
    id: chat_id,
    messages,
    transport: new Transport({ api, headers, fetch: notedFetch(requests, running) }),
    onError: (error) => errors.push(textOf(error)),
    onData: (part) => data.push(structuredClone(part)),
    onFinish: ({ isAbort, isDisconnect, isError, finishReason }) =>
      finishes.push({ isAbort, isDisconnect, isError, finishReason }),
    sendAutomaticallyWhen: (options) => automatic && (
      version.lastAssistantMessageIsCompleteWithToolCalls(options) ||
      version.lastAssistantMessageIsCompleteWithApprovalResponses?.(options) === true),
  });
  signal.addEventListener('abort', () => chat.stop());

  /** Waits until the chat has nothing to do: requests are also sent automatically, after an answer. */
  const settled = async () => {
    for (let quiet = 0; quiet < 3 && !signal.aborted;) {
      await pause(5);
      const busy = running.count > 0 || ['submitted', 'streaming'].includes(chat.status);
      quiet = busy ? 0 : quiet + 1;
    }
  };
  const approve = ({ id, ...verdict }) => {
    const open = chat.messages.flatMap((message) => message.parts).filter(isApproval);
    const known = id === 'last' ? open.at(-1)?.approval.id : id;
    if (!chat.addToolApprovalResponse) throw new Error(`${client} has no approvals`);
    if (known === undefined) throw new Error('no approval is open');
    return chat.addToolApprovalResponse({ id: known, ...verdict });
  };

  let error = null;
  try {
    for (const step of steps) {
      if ('stop_after_chunks' in step) stopAfter = step.stop_after_chunks;
      if ('send' in step) await chat.sendMessage({ text: step.send });
      if ('regenerate' in step) await chat.regenerate({ messageId: step.regenerate ?? undefined });
      if ('approve' in step) await approve(step.approve);
      if ('tool_output' in step) await (chat.addToolOutput ?? chat.addToolResult)(step.tool_output);
      if ('resume' in step) await chat.resumeStream();
      await settled();
    }
  } catch (seen) {
    error = textOf(seen);
  }
  return { ok: error === null && errors.length === 0, error: error ?? errors[0] ?? null,
    messages: chat.messages, status: chat.status, errors, data, finishes, requests };
}

// --- AG-UI ---

function agUiAgent({ threadId = 't', messages = [], state, interrupts }, url, fetch) {
  const agent = new HttpAgent({ url, threadId, initialMessages: messages, initialState: state, fetch });
  if (interrupts) agent.pendingInterrupts = interrupts;
  return agent;
}

/** A run of an agent, and what the client reported about it. */
async function runAgUi(agent, { runId, tools = [], context, forwardedProps, resume }) {
  const run = { ok: true, error: null, events: [], finished: null, outcome: null, result: null, run_error: null };
  const onError = (seen) => { run.error ??= textOf(seen); };
  try {
    const { result } = await agent.runAgent({ runId, tools, context, forwardedProps, resume }, {
      onEvent: ({ event }) => { run.events.push(event.type); },
      onRunFailed: ({ error }) => onError(error),
      onRunErrorEvent: ({ event: { message, code } }) => {
        run.run_error = { message, code };
        onError(message);
      },
      onRunFinishedEvent: ({ event, outcome, interrupts, pendingToolCallIds, result }) => {
        run.finished = { outcome, interrupts, pendingToolCallIds, result, usage: event.usage };
        run.outcome = event.outcome ?? null;
      },
    });
    run.result = result ?? null;
  } catch (seen) {
    onError(seen);
  }
  run.ok = run.error === null;
  return run;
}

const kept = (agent) => ({ messages: agent.messages, state: agent.state, interrupts: agent.pendingInterrupts });

async function readAgUi({ body, chunk_size, input = {} }) {
  const agent = agUiAgent(input, 'http://localhost/agent', async () => response(body, chunk_size));
  const run = await runAgUi(agent, { runId: 'r', ...input });
  return { ...run, ...kept(agent) };
}

async function postAgUi({ input = {}, resume = input.resume }) {
  let posted;
  const agent = agUiAgent(input, 'http://localhost/agent', async (url, init) => {
    posted = told(url, init);
    return response('');
  });
  const { error } = await runAgUi(agent, { runId: 'r', ...input, resume });
  return posted ? { ok: true, ...posted } : { ok: false, error: error ?? 'nothing was posted' };
}

/** Answers to the open interrupts. */
function resumeOf(wanted, open) {
  if (Array.isArray(wanted)) return wanted;
  const answers = {
    approve_all: { status: 'resolved', payload: { approved: true } },
    deny_all: { status: 'resolved', payload: { approved: false } },
    cancel_all: { status: 'cancelled' },
  };
  if (!answers[wanted]) throw new Error(`there is no answer ${wanted}`);
  return open.map(({ id }) => ({ interruptId: id, ...answers[wanted] }));
}

async function conversationAgUi({ url, input = {}, steps = [] }, signal) {
  const requests = [], runs = [];
  const agent = agUiAgent(input, url, notedFetch(requests, { count: 0 }));
  signal.addEventListener('abort', () => agent.abortRun());
  let error = null;
  try {
    for (const [at, step] of steps.entries()) {
      if ('send' in step) agent.addMessage({ id: `user-${at}`, role: 'user', content: step.send });
      const results = [step.tool_result ?? []].flat();
      results.forEach((result, nth) => agent.addMessage({ id: `result-${at}-${nth}`, role: 'tool', ...result }));
      const resume = 'resume' in step ? resumeOf(step.resume, agent.pendingInterrupts) : undefined;
      runs.push(await runAgUi(agent, { ...input, runId: `run-${at}`, resume }));
    }
  } catch (seen) {
    error = textOf(seen);
  }
  error ??= runs.find((run) => !run.ok)?.error ?? null;
  return { ok: error === null, error, ...kept(agent), runs, requests };
}

function versions() {
  const version = (name) =>
    JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
  const packages = Object.fromEntries([...names, '@ag-ui/client'].map((name) => [name, version(name)]));
  const line = `node ${process.version}, ai ${names.map(version).join(' ')}, @ag-ui/client ${version('@ag-ui/client')}`;
  return { ok: true, node: process.version, packages, line };
}

// --- requests and answers ---

const isAgUi = ({ client }) => client === 'ag_ui';
const operations = {
  read: (request) => (isAgUi(request) ? readAgUi(request) : readAiSdk(request)),
  post: (request) => (isAgUi(request) ? postAgUi(request) : postAiSdk(request)),
  reconnect: reconnectAiSdk,
  chat: chatAiSdk,
  agent: conversationAgUi,
  versions,
};

async function answerTo(request) {
  if (!Object.hasOwn(operations, request?.do)) throw new Error(`there is no operation ${request?.do}`);
  const stop = new AbortController();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      reject(new Error(`no end after ${LIMIT / 1000} s`));
      stop.abort();
    }, LIMIT);
  });
  try {
    return await Promise.race([operations[request.do](request, stop.signal), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The lines of the input. `readline` also cuts at U+2028, which JSON has inside of strings. */
async function* lines() {
  let rest = '';
  process.stdin.setEncoding('utf8');
  for await (const piece of process.stdin) {
    const parts = (rest + piece).split('\n');
    rest = parts.pop();
    yield* parts;
  }
  if (rest) yield rest;
}

for await (const line of lines()) {
  let id = null;
  let answer;
  warnings = [];
  try {
    const request = JSON.parse(line);
    id = request?.id ?? null;
    answer = await answerTo(request);
  } catch (error) {
    answer = { ok: false, error: textOf(error) };
  }
  if (warnings.length > 0) answer.warnings = warnings;
  process.stdout.write(JSON.stringify({ id, ...answer }) + '\n');
}
process.stdout.write('', () => process.exit(0));
