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
