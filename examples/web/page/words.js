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

/** How a run ended, as one line. */
export function endWords(outcome) {
  const reason = typeof outcome.reason === 'string' ? outcome.reason : Object.keys(outcome.reason)[0];
  let words = ENDS[reason] ?? `Ended: ${reason}`;
  if (outcome.why) words += `: ${outcome.why}`;
  if (outcome.error) words += `: ${outcome.error.message ?? outcome.error.kind}`;
  return words;
}

/** How a call ended. */
export const resultWords = (kind) => RESULTS[kind] ?? kind;

const number = new Intl.NumberFormat('en');

/** How many requests and tokens a run used, and their cost. */
export function usageWords({ turns, usage, nested_usage: nested, cost }, price) {
  const input = usage.input_tokens + (nested?.input_tokens ?? 0);
  const output = usage.output_tokens + (nested?.output_tokens ?? 0);
  const parts = [];
  if (turns !== undefined) parts.push(turns === 1 ? '1 request' : `${turns} requests`);
  parts.push(`${number.format(input)} tokens in, ${number.format(output)} out`);
  const millionths = cost ?? (price ? input * price.input + output * price.output : undefined);
  if (millionths !== undefined && millionths !== null) {
    parts.push(`cost ${(millionths / 1e6).toFixed(4)}`);
  }
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
