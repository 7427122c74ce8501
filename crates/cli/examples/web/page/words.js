// The texts of the page about runs.

const ENDS = {
  completed: 'Done',
  max_turns: 'Ended: the limit of requests to the model was reached',
  interrupted: 'Stopped',
  stopped: 'Stopped after the turn',
  stop_hook_prevented: 'Ended by a hook',
  context_window: 'Ended: the conversation is too long for the model',
  truncated: 'Ended: the answer exceeded the output limit of the model',
  refused: 'The model refused',
  filtered: 'Ended by a content filter',
  malformed: 'Ended: the responses of the model were malformed',
  repeating: 'Ended: the model repeated itself',
  budget: 'Ended: the budget was spent',
  incomplete: 'Ended: the answer was cut off',
  pending: 'Waits for your approval',
  blocked: 'Ended: the model cannot continue, because something is missing',
  unproven: 'Ended: no check shows that the work is done',
  provider_error: 'The request to the model failed',
  hook_error: 'Ended: a hook failed',
};

// Errors whose request may succeed if it is sent again, and errors that need another request.
const RETRYABLE = [
  'connect', 'timeout', 'rate_limited', 'overloaded', 'server', 'generation_failed', 'incomplete_turn', 'malformed',
];
const FINAL = [
  'auth', 'billing', 'context_window', 'invalid_request', 'unsupported', 'filtered', 'protocol', 'too_large',
];

const RESULTS = {
  ok: 'done',
  error: 'failed',
  timeout: 'timed out',
  panic: 'crashed',
  invalid_arguments: 'had wrong arguments',
  unknown_tool: 'does not exist',
  denied: 'was denied',
  interrupted: 'was stopped',
  truncated: 'was cut off',
  budget: 'did not run: the budget was spent',
  skipped: 'was skipped',
};

/** A name of the protocol, as words. */
const nameWords = (name) => name.replaceAll('_', ' ');

/** How a run ended, as one line. The reason is unknown if only its stored messages show how the run ended. */
export function endWords({ reason, why, error }) {
  let words = reason ? ENDS[reason] ?? `Ended: ${nameWords(reason)}` : 'Ended';
  if (why) words += `: ${why}`;
  if (error) words += `: ${errorWords(error)}`;
  return words;
}

/** Whether a run ended as the model or the user intended. */
export const isGoodEnd = ({ reason, error }) =>
  !error && (!reason || ['completed', 'interrupted', 'stopped', 'pending'].includes(reason));

export const errorWords = ({ message, kind }) => message || nameWords(kind ?? 'unknown error');

/** Whether a run has failed, and the same request may succeed now. */
export const isWorthRetrying = ({ error }) => Boolean(error && (error.retryable ?? RETRYABLE.includes(error.kind)));

/** Whether a run has failed, and would fail again. */
export const isFinal = ({ error }) => Boolean(error && !isWorthRetrying({ error }) && FINAL.includes(error.kind));

/** How a call ended. */
export const resultWords = (kind) => RESULTS[kind] ?? nameWords(kind);

/** A step of a trace, as one line. */
export function stepWords({ type, tool, text, stop_reason: reason }) {
  if (type === 'tool') return tool;
  if (type === 'say') return `Answer: ${text}`;
  const words = reason === 'success' ? 'Done, with a proof' : endWords({ reason });
  return text ? `${words}: ${text}` : words;
}

const number = new Intl.NumberFormat('en');

/** How many requests and tokens a run used, and their cost. Unknown numbers are left out. */
export function usageWords(outcome, price) {
  const { turns, usage, nested_usage: nested, cost, nested_cost: nestedCost } = outcome;
  const input = (usage?.input_tokens ?? 0) + (nested?.input_tokens ?? 0);
  const output = (usage?.output_tokens ?? 0) + (nested?.output_tokens ?? 0);
  const isKnown = input + output > 0;
  const parts = [];
  if (turns !== undefined) parts.push(turns === 1 ? '1 request' : `${turns} requests`);
  if (isKnown) parts.push(`${number.format(input)} tokens in, ${number.format(output)} out`);
  const usesSubAgents = (nested?.input_tokens ?? 0) + (nested?.output_tokens ?? 0) > 0;
  const reported = usesSubAgents ? (nestedCost === undefined ? null : cost + nestedCost) : cost;
  const millionths = reported ?? (price ? input * price.input + output * price.output : null);
  if (isKnown && millionths !== null) parts.push(`cost ${(millionths / 1e6).toFixed(4)}`);
  return parts.join(' · ');
}

/** The text of a message's content: a string, or parts. */
export function contentText(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return content === undefined ? '' : JSON.stringify(content);
  const part = (it) => (it.type === 'text' ? it.text : `[${it.media_type ?? it.type}]`);
  return content.map(part).join('\n');
}

/** A time in a short form: the time of day, or the date if it is not today. */
export function timeWords(milliseconds) {
  const time = new Date(milliseconds);
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday
    ? time.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
    : time.toLocaleDateString();
}
