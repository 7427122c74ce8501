// Checks that the clients still accept and reject the same streams as when the encoders were written.
// `node self_test.mjs FOLDER`, with the folder of run.sh.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const folder = process.argv[2] ?? '.';
const clients = spawn(process.execPath, [join(folder, 'clients.mjs')], { stdio: ['pipe', 'pipe', 'ignore'] });
const answers = createInterface({ input: clients.stdout })[Symbol.asyncIterator]();
let asked = 0;
async function ask(request) {
  const id = ++asked;
  clients.stdin.write(JSON.stringify({ id, ...request }) + '\n');
  const answer = JSON.parse((await answers.next()).value);
  assert.equal(answer.id, id);
  return answer;
}

const sse = (chunks) => chunks.map((chunk) => `data: ${chunk === '[DONE]' ? chunk : JSON.stringify(chunk)}\n\n`).join('');
let checked = 0;

// --- AI SDK: the streams that each client accepts ---

const ALL = ['ai5_0_0', 'ai5', 'ai6_0_0', 'ai6', 'ai7'];
const NOT_5_0_0 = ALL.slice(1);
const NEW = ['ai5', 'ai6', 'ai7'];
const SIX = ['ai6_0_0', 'ai6', 'ai7'];
const SEVEN = ['ai7'];
const NONE = [];

const start = { type: 'start', messageId: 'm1' };
const step = { type: 'start-step' };
const endStep = { type: 'finish-step' };
const end = [{ type: 'finish' }, '[DONE]'];
const open = (id) => ({ type: 'text-start', id });
const delta = (id, delta) => ({ type: 'text-delta', id, delta });
const text = (id, words) => [open(id), delta(id, words), { type: 'text-end', id }];
const inputStart = { type: 'tool-input-start', toolCallId: 'c1', toolName: 'look', dynamic: true };
const input = { type: 'tool-input-available', toolCallId: 'c1', toolName: 'look', input: { a: 1 }, dynamic: true };
const output = { type: 'tool-output-available', toolCallId: 'c1', output: { n: 2 }, dynamic: true };
const approval = { type: 'tool-approval-request', approvalId: 'a1', toolCallId: 'c1' };
const denied = { type: 'tool-output-denied', toolCallId: 'c1' };

const streams = [
  ['text', ALL, [start, step, ...text('t', 'Hello'), endStep, ...end]],
  ['a tool', ALL, [start, step, inputStart, input, output, endStep, ...end]],
  ['a call without its start', ALL, [start, input, output, ...end]],
  ['an output in the next step', ALL, [start, step, input, endStep, step, output, endStep, ...end]],
  ['the same text id again', ALL, [start, ...text('t', 'a'), ...text('t', 'b'), ...end]],
  ['no start, no end', ALL, [open('t'), delta('t', 'x')]],
  ['abort', ALL, [start, { type: 'abort' }, '[DONE]']],
  ['a reason to abort', NEW, [start, { type: 'abort', reason: 'user' }, '[DONE]']],
  ['a reason to finish', NOT_5_0_0, [start, { type: 'finish', finishReason: 'tool-calls' }, '[DONE]']],
  ['a preliminary output', NOT_5_0_0, [start, input, { ...output, preliminary: true }, output, ...end]],
  ['an input that is wrong', NOT_5_0_0,
    [start, { ...input, type: 'tool-input-error', input: '{"a', errorText: 'not JSON' }, ...end]],
  ['an unknown field', NEW, [start, { ...open('t'), extra: 1 }, ...end]],
  ['an approval', SIX, [start, input, approval, ...end]],
  ['a denial', SIX, [start, input, approval, denied, ...end]],
  ['an approval and its answer', SEVEN,
    [start, input, approval, { type: 'tool-approval-response', approvalId: 'a1', approved: true }, output, ...end]],
  ['reset-step', SEVEN, [start, step, ...text('t', 'a'), { type: 'reset-step' }, ...end]],
  ['interrupted', SEVEN, [start, { type: 'finish', finishReason: 'interrupted' }, '[DONE]']],
  ['a text over two steps', SEVEN, [start, step, open('t'), endStep, step, delta('t', 'x'), ...end]],
  ['an unknown type', NONE, [start, { type: 'new' }, ...end]],
  ['null', NONE, [{ type: 'start', messageId: null }, ...end]],
  ['a number as an id', NONE, [start, open(1), ...end]],
  ['a field that is missing', NONE, [start, open('t'), { type: 'text-delta', id: 't' }, ...end]],
  ['tool_calls', NONE, [start, { type: 'finish', finishReason: 'tool_calls' }, '[DONE]']],
  ['a delta without a start', NONE, [start, delta('t', 'x'), ...end]],
  ['an end without a start', NONE, [start, { type: 'text-end', id: 't' }, ...end]],
  ['an output of no call', NONE, [start, output, ...end]],
  ['an approval of no call', NONE, [start, approval, ...end]],
];
for (const [name, takers, chunks] of streams) {
  for (const client of ALL) {
    const { ok, error } = await ask({ do: 'read', client, body: sse(chunks), chunk_size: 7 });
    assert.equal(ok, takers.includes(client), `${client}, ${name}: ${error}`);
    checked += 1;
  }
}

for (const client of ALL) {
  const failed = await ask({ do: 'read', client, body: sse([start, ...text('t', 'x'), { type: 'error', errorText: 'boom' }]) });
  assert.equal(failed.error_chunk, 'boom');
  assert.equal(failed.message.parts[0].text, 'x');
  // A truncated stream is not detected.
  const cut = await ask({ do: 'read', client, body: sse([start, open('t')]) + 'data: {"type":"text-del' });
  assert.equal(cut.ok, true);
  const whole = [start, step, ...text('t', 'Hello'), inputStart, input, output, endStep, ...end];
  const { message } = await ask({ do: 'read', client, body: sse(whole) });
  assert.deepEqual(message, { id: 'm1', role: 'assistant', parts: [
    { type: 'step-start' },
    { type: 'text', text: 'Hello', state: 'done' },
    { type: 'dynamic-tool', toolName: 'look', toolCallId: 'c1', state: 'output-available', input: { a: 1 }, output: { n: 2 } },
  ] });
  const again = await ask({ do: 'read', client, message, body: sse([start, step, ...text('t', 'Bye'), ...end]) });
  assert.equal(again.message.parts.length, 5);

  const user = { id: 'u', role: 'user', parts: [{ type: 'text', text: 'hi' }] };
  const posted = await ask({ do: 'post', client, chat_id: 'c', messages: [user] });
  assert.deepEqual(JSON.parse(posted.body), { id: 'c', messages: [user], trigger: 'submit-message' });
  const last = await ask({ do: 'post', client, chat_id: 'c', messages: [user], last_only: true, message_id: 'm' });
  assert.deepEqual(JSON.parse(last.body), { id: 'c', message: user, trigger: 'submit-message', messageId: 'm' });

  const none = await ask({ do: 'reconnect', client, chat_id: 'c', status: 204 });
  assert.deepEqual([none.ok, none.stream, none.method], [true, false, 'GET']);
  const some = await ask({ do: 'reconnect', client, chat_id: 'c', body: sse([start, ...text('t', 'x'), ...end]) });
  assert.deepEqual([some.ok, some.stream, some.message.parts[0].text], [true, true, 'x']);
  checked += 8;
}

// --- AG-UI: the streams that the client accepts ---

const started = { type: 'RUN_STARTED', threadId: 't', runId: 'r' };
const finished = { type: 'RUN_FINISHED', threadId: 't', runId: 'r' };
const says = (id) => [
  { type: 'TEXT_MESSAGE_START', messageId: id, role: 'assistant' },
  { type: 'TEXT_MESSAGE_CONTENT', messageId: id, delta: 'Hello' },
  { type: 'TEXT_MESSAGE_END', messageId: id },
];
const calls = [
  { type: 'TOOL_CALL_START', toolCallId: 'c1', toolCallName: 'look', parentMessageId: 'm1' },
  { type: 'TOOL_CALL_ARGS', toolCallId: 'c1', delta: '{"a":1}' },
  { type: 'TOOL_CALL_END', toolCallId: 'c1' },
];
const result = { type: 'TOOL_CALL_RESULT', messageId: 'r1', toolCallId: 'c1', content: '2' };
const subagent = { type: 'SUBAGENT_STARTED', subagentRunId: 's1', name: 'child' };
const subagentEnd = { type: 'SUBAGENT_FINISHED', subagentRunId: 's1' };
const interrupt = { id: 'c1', reason: 'tool_approval', toolCallId: 'c1' };
const stepOf = (type) => ({ type, stepName: 'turn-1' });

const runs = [
  ['text and a tool', true, [started, ...says('m1'), ...calls, result, finished]],
  ['a subagent', true, [started, subagent, ...says('m1').map((e) => ({ ...e, subagentRunId: 's1' })), subagentEnd, finished]],
  ['the same message id again', true, [started, ...says('m1'), ...says('m1'), finished]],
  ['interleaved', true, [started, says('m1')[0], calls[0], says('m1')[1], calls[1], says('m1')[2], calls[2], finished]],
  ['no end', true, [started, ...says('m1')]],
  ['cancelled', true, [started, { ...finished, outcome: { type: 'cancelled' } }]],
  ['an interrupt', true, [started, ...calls, { ...finished, outcome: { type: 'interrupt', interrupts: [interrupt] } }]],
  ['no interrupts', false, [started, { ...finished, outcome: { type: 'interrupt', interrupts: [] } }]],
  ['no RUN_STARTED', false, [...says('m1'), finished]],
  ['an event after the end', false, [started, finished, ...says('m1')]],
  ['a text that is open', false, [started, says('m1')[0], finished]],
  ['a call that is open', false, [started, calls[0], finished]],
  ['a step that is open', false, [started, stepOf('STEP_STARTED'), finished]],
  ['a subagent that is open', false, [started, subagent, finished]],
  ['a subagent again', false, [started, subagent, subagentEnd, subagent, subagentEnd, finished]],
  ['content without a start', false, [started, says('m1')[1], finished]],
  ['a start twice', false, [started, says('m1')[0], says('m1')[0], finished]],
  ['null', false, [started, { ...says('m1')[0], name: null }, says('m1')[2], finished]],
  ['reasoning without its role', false,
    [started, { type: 'REASONING_MESSAGE_START', messageId: 'x' }, { type: 'REASONING_MESSAGE_END', messageId: 'x' }, finished]],
  ['an activity that is not an object', false,
    [started, { type: 'ACTIVITY_SNAPSHOT', messageId: 'a', activityType: 'x', content: 'half' }, finished]],
  ['[DONE]', false, [started, finished, '[DONE]']],
];
const readAgUi = (body, input) => ask({ do: 'read', client: 'ag_ui', body, input, chunk_size: 7 });
for (const [name, isTaken, events] of runs) {
  const { ok, error } = await readAgUi(sse(events));
  assert.equal(ok, isTaken, `ag_ui, ${name}: ${error}`);
  checked += 1;
}
assert.equal((await readAgUi(sse([started, finished]).replaceAll('\n', '\r\n'))).ok, false);
assert.equal((await readAgUi(sse([started]) + 'data: {"type":"RUN_FIN')).ok, false);
const unknown = await readAgUi(sse([started, { type: 'NEW' }, { ...finished, extra: 1 }]));
assert.deepEqual([unknown.ok, unknown.warnings.length], [true, 2]);
const failed = await readAgUi(sse([started, says('m1')[0], { type: 'RUN_ERROR', message: 'boom', code: 'x' }]));
assert.deepEqual([failed.ok, failed.run_error], [false, { message: 'boom', code: 'x' }]);
const read = await readAgUi(sse([started, ...says('m1'), ...calls, result, finished]));
assert.deepEqual(read.messages, [
  { id: 'm1', role: 'assistant', content: 'Hello',
    toolCalls: [{ id: 'c1', type: 'function', function: { name: 'look', arguments: '{"a":1}' } }] },
  { id: 'r1', role: 'tool', toolCallId: 'c1', content: '2' },
]);
const refused = await ask({ do: 'post', client: 'ag_ui', input: { interrupts: [interrupt] } });
assert.equal(refused.ok, false);
checked += 6;

// --- conversations with a server ---

let respond;
const server = createServer(async (request, response) => {
  let body = '';
  for await (const piece of request) body += piece;
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (const chunk of respond(JSON.parse(body))) {
    if (response.destroyed) return;
    response.write(sse([chunk]));
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  response.end();
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${server.address().port}/api/chat`;
const chat = (client, steps) => ask({ do: 'chat', client, api: url, chat_id: 'c', steps });
const statesOf = ({ messages }) => messages.at(-1).parts.map((part) => part.state ?? part.type);
const last = ({ requests }) => JSON.parse(requests.at(-1).body);

for (const client of SIX) {
  respond = ({ messageId }) => messageId
    ? [start, output, step, ...text('t', 'done'), ...end]
    : [start, step, input, approval, endStep, ...end];
  const approved = await chat(client, [{ send: 'hi' }, { approve: { id: 'last', approved: true } }]);
  assert.deepEqual(statesOf(approved), ['step-start', 'output-available', 'step-start', 'done'], approved.error);
  assert.deepEqual([approved.requests.length, last(approved).messageId], [2, 'm1']);
  checked += 1;
}
for (const client of NEW) {
  respond = ({ messageId }) => (messageId ? [start, step, ...text('t', 'done'), ...end] : [start, step, input, endStep, ...end]);
  const answered = await chat(client, [{ send: 'hi' }, { tool_output: { toolCallId: 'c1', tool: 'look', output: 1 } }]);
  assert.deepEqual(statesOf(answered), ['step-start', 'output-available', 'step-start', 'done'], answered.error);

  // A run that ends with the output of a tool of the server is sent again.
  let runs = 0;
  respond = () => (++runs < 3 ? [start, step, input, output, endStep, ...end] : [start, step, ...text('t', 'x'), ...end]);
  assert.equal((await chat(client, [{ send: 'hi' }])).requests.length, 3);

  respond = () => [start, open('t'), ...Array(50).fill(delta('t', 'x')), ...end];
  const stopped = await chat(client, [{ stop_after_chunks: 5 }, { send: 'hi' }]);
  assert.deepEqual([stopped.status, stopped.finishes[0].isAbort], ['ready', true]);
  assert.ok(stopped.messages[1].parts[0].text.length < 50);

  respond = () => [start, { type: 'data-x', data: 1, transient: true }, ...text('t', 'x'), { type: 'error', errorText: 'boom' }];
  const broken = await chat(client, [{ send: 'hi' }]);
  assert.deepEqual([broken.ok, broken.status, broken.errors, broken.data.length], [false, 'error', ['boom'], 1]);
  checked += 4;
}

respond = ({ resume }) => resume
  ? [started, { ...result, content: String(resume[0].payload.approved) }, finished]
  : [started, ...calls, { ...finished, outcome: { type: 'interrupt', interrupts: [interrupt] } }];
for (const [answer, approved] of [['approve_all', 'true'], ['deny_all', 'false']]) {
  const agent = await ask({ do: 'agent', client: 'ag_ui', url, steps: [{ send: 'hi' }, { resume: answer }] });
  assert.deepEqual([agent.ok, agent.runs.length, agent.messages.at(-1).content], [true, 2, approved], agent.error);
  assert.deepEqual(agent.interrupts, []);
}
respond = ({ messages }) => (messages.at(-1).role === 'tool' ? [started, ...says('m2'), finished] : [started, ...calls, finished]);
const tool = { toolCallId: 'c1', content: 'yes' };
const own = await ask({ do: 'agent', client: 'ag_ui', url, steps: [{ send: 'hi' }, { tool_result: tool }] });
assert.deepEqual(own.messages.map(({ role }) => role), ['user', 'assistant', 'tool', 'assistant'], own.error);
assert.deepEqual(own.runs[0].finished.pendingToolCallIds, ['c1']);
checked += 3;

// --- requests that are wrong ---

for (const request of [{}, { do: 'toString' }, { do: 'read', client: 'x', body: '' }, { do: 'read', client: 'ai7' }]) {
  assert.equal((await ask(request)).ok, false);
  checked += 1;
}
clients.stdin.write('not JSON\n');
assert.equal(JSON.parse((await answers.next()).value).ok, false);
const { line } = await ask({ do: 'versions' });

server.closeAllConnections();
server.close();
clients.stdin.end();
console.log(`${checked + 1} checks hold: ${line}`);
