// Shows text so that nothing in it is hidden.
//
// A text that a model writes may have characters that are invisible, that look like a space, or that change the order
// of others. Each is shown as a mark: an element with its code point, such as U+3164. A model can write these letters,
// but not the element.

import { element } from './elements.js';

// The sets of characters, for patterns with the flag `v`. Unassigned characters (part of `\p{C}`) are those of the
// Unicode version of the browser. The blank characters in the second set have no property that says so.
const IGNORABLE = String.raw`\p{DI}\p{C}\p{Z}`;
const BLANK = String.raw`\u2800\ufffc\u{13441}\u{13442}\u{16fe4}\u{1d159}`;
const HIDDEN = String.raw`[[${IGNORABLE}${BLANK}]--[ \n\t]]`;
// In prose, most of these have a common use, in emoji and in many languages.
const HIDDEN_IN_PROSE = String.raw`[${HIDDEN}--[\p{Zs}\u200c\u200d\ufe0e\ufe0f]]`;
// A combining character without a base is drawn over whatever is before it. So are many on one base.
const COMBINING = String.raw`[\p{M}--${HIDDEN}]`;
const BASE = String.raw`[[\p{L}\p{N}\p{P}\p{S}]--${HIDDEN}]`;
const STRAY = `(?<!${BASE}${COMBINING}{0,5})${COMBINING}`;

const repeated = (name, character) => String.raw`(?<${name}>${character})\k<${name}>*`;
const MARKS = [repeated('hidden', HIDDEN), `(?<stray>${STRAY})`];
const WHITESPACE = [
  String.raw`(?<newline>\n)`,
  String.raw`(?<tab>\t)`,
  // Spaces that are easily overlooked: several, or next to the start or end of a line or to a tab.
  String.raw`(?<spaces> {2,}|(?<![^\n\t]) | (?![^\n\t]))`,
];
// In JSON text, escapes hide what they stand for. An escaped backslash does not start one.
const ESCAPES = [
  String.raw`(?<skipped>\\{2})`,
  String.raw`(?<escape>(?:\\u[\da-fA-F]{4})+)`,
];

const pattern = (...kinds) => new RegExp(kinds.join('|'), 'gv');
const PATTERNS = {
  exact: pattern(...MARKS, ...WHITESPACE),
  json: pattern(...ESCAPES, ...MARKS, ...WHITESPACE),
  marked: pattern(...MARKS),
  prose: pattern(repeated('hidden', HIDDEN_IN_PROSE)),
};

/**
 * The pieces of a text, in order, as `{ kind, text }`: `plain`, or text that is shown in another way: `hidden` (one
 * character, repeated or not), `stray`, `newline`, `tab`, `spaces`, and `escape` in JSON text.
 */
export function pieces(text, as = 'exact') {
  const found = [];
  let end = 0;
  const plain = (to) => {
    if (to > end) found.push({ kind: 'plain', text: text.slice(end, to) });
  };
  for (const match of text.matchAll(PATTERNS[as])) {
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    if (kind === 'skipped') continue;
    plain(match.index);
    found.push({ kind, text: match[0] });
    end = match.index + match[0].length;
  }
  plain(text.length);
  return found;
}

const codePoint = (character) =>
  `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;

/** The words of a mark: the code point, and how many times it occurs in a row. */
function markWords(text) {
  const count = [...text].length;
  return count === 1 ? codePoint(text) : `${codePoint(text)} ×${count}`;
}

/** The text that escapes stand for, as plain text. */
function decoded(escapes) {
  const shown = pieces(JSON.parse(`"${escapes}"`));
  return shown.map(({ kind, text }) => (kind === 'plain' ? text : `‹${markWords(text)}›`)).join('');
}

function shownPiece({ kind, text }) {
  switch (kind) {
    case 'plain':
      return text;
    case 'hidden':
    case 'stray': {
      const words = markWords(text);
      return element('span', { className: 'mark', role: 'img', 'aria-label': `hidden character ${words}` }, words);
    }
    case 'escape':
      return element('span', { className: 'escape', 'data-decoded': decoded(text) }, text);
    default:
      // The style shows these characters, and the text stays as it is.
      return element('span', { className: kind }, text);
  }
}

/** The text as a string, or as a fragment if it has elements. */
function show(text, as) {
  const parts = pieces(text, as);
  if (parts.every(({ kind }) => kind === 'plain')) return text;
  const fragment = document.createDocumentFragment();
  for (const part of parts) fragment.append(shownPiece(part));
  return fragment;
}

/** The text, with marks, line breaks, tabs and spaces that can be seen. */
export const exactText = (text) => show(text, 'exact');

/** The same for JSON text, whose escapes are shown with their meaning. */
export const exactJson = (text) => show(text, 'json');

/** Text with a layout of its own: it has the marks only. */
export const markedText = (text) => show(text, 'marked');

/** Text for reading. It has marks only for characters without a common use. */
export const prose = (text) => show(text, 'prose');
