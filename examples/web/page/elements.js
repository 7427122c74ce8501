// Creates elements. Text is always inserted as text: nothing on this page is parsed as HTML.

/** An element with a class, attributes, listeners and children. */
export function element(name, { className = '', ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, '');
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

// Characters that are invisible, or change the order of the characters around them.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

/** The same text with invisible characters escaped, for text that the user has to review. */
export function showInvisible(text) {
  const written = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;
  return text.replace(INVISIBLE, written);
}
