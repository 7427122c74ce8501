// The arguments of a call, exactly as the model wrote them.

import { element } from './elements.js';
import { decodeString, indent, isPlain, members, readJson } from './json_text.js';
import { box, start, textBox } from './text_box.js';
import { exactJson, exactText } from './visible_text.js';

const ERRORS = {
  invalid: 'These arguments are not valid JSON',
  too_large: 'These arguments are too large to be listed',
};

/**
 * Lists the members of an object, in the order in which they were written. Each string is decoded, and other values
 * have the same tokens as the text. The text itself is added if it says more than the list, or if it is not listed.
 */
export function argumentList(text) {
  if (!text) return note('No arguments');
  const { error, tokens, repeated } = readJson(text);
  if (error) return element('div', {}, note(ERRORS[error]), textBox(text, exactJson, 'raw'));
  const isList = tokens[0] === '{' && tokens.length > 2;
  const list = element('div', {}, isList ? memberList(tokens) : value(tokens));
  if (repeated.length) list.append(note('Keys that occur more than once: ', ...repeated.map(keyName)));
  if (repeated.length || !tokens.every(isPlain)) {
    list.append(note('The arguments as they were written'), textBox(text, exactJson, 'raw'));
  }
  return list;
}

function note(...content) {
  return element('p', { className: 'note' }, ...content);
}

function keyName(key) {
  return element('code', { className: 'exact' }, exactText(key));
}

function memberList(tokens) {
  const list = element('dl');
  for (const member of members(tokens)) {
    list.append(
      element('dt', { className: 'exact' }, exactText(decodeString(member.key))),
      element('dd', {}, value(member.value)),
    );
  }
  return list;
}

function value(tokens) {
  if (tokens[0][0] === '"') return textBox(decodeString(tokens[0]), exactText, 'text');
  const lines = indent(tokens);
  const length = lines.flat().reduce((sum, text) => sum + text.length, 0);
  return box(length, 'json', (limit) => shownTokens(lines, limit));
}

function shownTokens(lines, limit) {
  const fragment = document.createDocumentFragment();
  let left = limit;
  for (const [space, token] of lines) {
    if (left <= 0) break;
    // Text that is written from right to left does not change places with the tokens around it.
    const isText = token[0] === '"';
    const shown = exactJson(start(token, left));
    fragment.append(space, isText ? element('bdi', {}, shown) : shown);
    left -= space.length + token.length;
  }
  return fragment;
}
