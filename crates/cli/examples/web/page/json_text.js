// Reads JSON text without changing it.
//
// JavaScript's own JSON rounds numbers, moves keys that look like integers to the front, and drops all but the last
// of the values of a repeated key. Here, every token stays as it was written.

// Larger texts are not read. The depth limits the indentation, and so the size of an indented text.
const MAX_CHARACTERS = 250_000;
const MAX_KEY_CHARACTERS = 1000;
const MAX_TOKENS = 10_000;
const MAX_DEPTH = 32;

const PUNCTUATION = '{}[]:,';
const SPACE = /[ \n\r\t]*/y;
const LITERAL = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;
const UNESCAPED = /[^"\\\u0000-\u001f]*/y;
const ESCAPE = /\\(?:["\\\/bfnrt]|u[\da-fA-F]{4})/y;

/** The position after a match at this position, or -1. */
function after(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : -1;
}

/** The position after a token, or -1. */
function tokenEnd(text, at) {
  if (PUNCTUATION.includes(text[at])) return at + 1;
  if (text[at] !== '"') return after(LITERAL, text, at);
  for (let end = at + 1; end >= 0; end = after(ESCAPE, text, end)) {
    end = after(UNESCAPED, text, end);
    if (text[end] === '"') return end + 1;
  }
  return -1;
}

/**
 * The `tokens` of a JSON text, in order and exactly as written, and the `repeated` keys of its objects, decoded. For
 * other texts, `error` is `invalid` or `too_large`.
 */
export function readJson(text) {
  if (text.length > MAX_CHARACTERS) return { error: 'too_large' };
  const tokens = [];
  const repeated = new Set();
  // The keys of the open objects, and null for each open array.
  const open = [];
  let expected = 'value';
  for (let at = after(SPACE, text, 0); at < text.length; at = after(SPACE, text, at)) {
    const end = tokenEnd(text, at);
    if (end < 0) return { error: 'invalid' };
    const token = text.slice(at, end);
    const next = nextExpected(expected, token, open);
    if (!next) return { error: 'invalid' };
    if (open.length > MAX_DEPTH || tokens.length === MAX_TOKENS) return { error: 'too_large' };
    if (next === 'colon') {
      if (token.length > MAX_KEY_CHARACTERS) return { error: 'too_large' };
      addKey(open.at(-1), decodeString(token), repeated);
    }
    tokens.push(token);
    expected = next;
    at = end;
  }
  return expected === 'end' ? { tokens, repeated: [...repeated] } : { error: 'invalid' };
}

function addKey(keys, key, repeated) {
  if (keys.has(key)) repeated.add(key);
  keys.add(key);
}

/** The tokens that may follow a token, or null if the token is not expected. Opens and closes objects and arrays. */
function nextExpected(expected, token, open) {
  switch (expected) {
    case 'value':
    case 'value_or_close':
      if (token === '{') {
        open.push(new Set());
        return 'key_or_close';
      }
      if (token === '[') {
        open.push(null);
        return 'value_or_close';
      }
      if (!PUNCTUATION.includes(token)) return afterValue(open);
      break;
    case 'key':
    case 'key_or_close':
      if (token[0] === '"') return 'colon';
      break;
    case 'colon':
      return token === ':' ? 'value' : null;
    case 'comma_or_close':
      if (token === ',') return open.at(-1) ? 'key' : 'value';
      break;
    case 'end':
      return null;
  }
  const isClose = open.length > 0 && token === (open.at(-1) ? '}' : ']');
  if (!isClose || !expected.endsWith('_or_close')) return null;
  open.pop();
  return afterValue(open);
}

const afterValue = (open) => (open.length ? 'comma_or_close' : 'end');

/** The text that a token of a string stands for. */
export const decodeString = (token) => JSON.parse(token);

/** Whether a token is not a string, or one without needless escapes. */
export const isPlain = (token) => token[0] !== '"' || JSON.stringify(decodeString(token)) === token;

const depthChange = (token) => {
  if (token === '{' || token === '[') return 1;
  return token === '}' || token === ']' ? -1 : 0;
};

/** The members of an object, as `{ key, value }`: a token, and the tokens of its value. */
export function members(tokens) {
  const found = [];
  let member = null;
  let depth = 0;
  for (const token of tokens.slice(1, -1)) {
    if (!member) found.push(member = { key: token, value: [] });
    else if (depth === 0 && token === ',') member = null;
    else if (depth > 0 || token !== ':') member.value.push(token);
    depth += depthChange(token);
  }
  return found;
}

/** The tokens with the space before each, `[space, token]`: one line for each value. */
export function indent(tokens) {
  let depth = 0;
  return tokens.map((token, at) => {
    const before = tokens[at - 1];
    const isFirst = before === '{' || before === '[';
    const isClose = depthChange(token) < 0;
    if (isClose) depth -= 1;
    const isNewLine = before === ',' || isFirst !== isClose;
    const space = before === ':' ? ' ' : '';
    const line = isNewLine ? `\n${'  '.repeat(depth)}` : space;
    if (depthChange(token) > 0) depth += 1;
    return [line, token];
  });
}
