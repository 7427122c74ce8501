// Renders Markdown while it streams. The text comes from a model, which may repeat text of an attacker: no HTML is
// rendered, links have only http, https and mailto addresses, and no image is loaded.

import * as smd from './streaming-markdown/smd.js';
import { element } from './elements.js';
import { start } from './text_box.js';
import { prose } from './visible_text.js';

const TAGS = {
  [smd.Token.Blockquote]: 'blockquote',
  [smd.Token.Paragraph]: 'p',
  [smd.Token.Heading_1]: 'h3',
  [smd.Token.Heading_2]: 'h3',
  [smd.Token.Heading_3]: 'h4',
  [smd.Token.Heading_4]: 'h4',
  [smd.Token.Heading_5]: 'h5',
  [smd.Token.Heading_6]: 'h5',
  [smd.Token.Code_Inline]: 'code',
  [smd.Token.Italic_Ast]: 'em',
  [smd.Token.Italic_Und]: 'em',
  [smd.Token.Strong_Ast]: 'strong',
  [smd.Token.Strong_Und]: 'strong',
  [smd.Token.Strike]: 's',
  [smd.Token.Link]: 'a',
  [smd.Token.Raw_URL]: 'a',
  [smd.Token.Line_Break]: 'br',
  [smd.Token.Rule]: 'hr',
  [smd.Token.List_Unordered]: 'ul',
  [smd.Token.List_Ordered]: 'ol',
  [smd.Token.List_Item]: 'li',
  [smd.Token.Table]: 'table',
};

/** The address if links to it are allowed. */
function safeAddress(text) {
  try {
    const url = new URL(text);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

// When text is added to a paragraph, the browser computes the layout of all of it. So a long one is divided into
// parts: after the first space that follows this many characters, or after twice as many.
const MAX_PART = 4000;
// An element counts as this many characters.
const ELEMENT_LENGTH = 20;

const INLINE = [
  smd.Token.Code_Inline,
  smd.Token.Italic_Ast,
  smd.Token.Italic_Und,
  smd.Token.Strong_Ast,
  smd.Token.Strong_Und,
  smd.Token.Strike,
  smd.Token.Link,
  smd.Token.Raw_URL,
  smd.Token.Line_Break,
];
// Inline elements and these have text of their own.
const DIVIDED = [
  ...INLINE,
  smd.Token.Paragraph,
  smd.Token.Heading_1,
  smd.Token.Heading_2,
  smd.Token.Heading_3,
  smd.Token.Heading_4,
  smd.Token.Heading_5,
  smd.Token.Heading_6,
  smd.Token.List_Item,
  smd.Token.Table_Cell,
];

/** An element whose end has not been read. */
class OpenElement {
  #isDivided;
  #part;
  /** The number of characters of the last part, and of the whole element. */
  #partLength = 0;
  #length = ELEMENT_LENGTH;

  constructor(node, type) {
    this.node = node;
    this.#part = node;
    this.#isDivided = DIVIDED.includes(type);
  }

  get length() {
    return this.#length;
  }

  addText(text) {
    for (let rest = text; rest;) {
      const piece = this.#isDivided ? this.#startOfPart(rest) : rest;
      this.append(prose(piece));
      this.grow(piece.length);
      rest = rest.slice(piece.length);
      if (this.#isDivided && this.#isFull(piece)) this.#divide();
    }
  }

  /** Adds an element. Inline elements are in the same paragraph as the text before them, other elements are not. */
  addElement(node, isInline) {
    if (this.#isDivided && isInline && this.#partLength >= MAX_PART) this.#divide();
    if (!isInline) this.#partLength = 0;
    this.append(node);
  }

  append(content) {
    this.#part.append(content);
  }

  grow(length) {
    this.#partLength += length;
    this.#length += length;
  }

  /** Whether the last part ends with this text. */
  #isFull(text) {
    return this.#partLength > MAX_PART && /\s$/.test(text) || this.#partLength >= 2 * MAX_PART - 1;
  }

  /** The start of a text that belongs to the last part. */
  #startOfPart(text) {
    const least = Math.max(0, MAX_PART - this.#partLength);
    const most = Math.max(1, 2 * MAX_PART - this.#partLength);
    const space = text.slice(least, most).search(/\s/);
    return start(text, space < 0 ? most : least + space + 1);
  }

  #divide() {
    this.#part = this.node.appendChild(element('span', { className: 'part' }));
    this.#partLength = 0;
  }
}

class Renderer {
  #open;
  #tail = document.createTextNode('');

  constructor(root) {
    this.#open = [new OpenElement(root, smd.Token.Document)];
    this.data = this;
    this.add_token = (_, type) => this.#begin(type);
    this.end_token = () => this.#end();
    this.add_text = (_, text) => this.#last().addText(text);
    this.set_attr = (_, type, value) => this.#set(type, value);
  }

  #last() {
    return this.#open[this.#open.length - 1];
  }

  /** Shows text whose meaning the parser has not decided yet, until more text arrives. */
  showTail(text) {
    this.#tail.remove();
    this.#tail = document.createTextNode(text);
    if (text) this.#last().append(this.#tail);
  }

  hideTail() {
    this.#tail.remove();
  }

  #begin(type) {
    const parent = this.#last();
    const node = this.#make(parent.node, type);
    parent.addElement(node, INLINE.includes(type));
    this.#open.push(new OpenElement(node, type));
  }

  #end() {
    const { length } = this.#open.pop();
    this.#last().grow(length);
  }

  #make(parent, type) {
    switch (type) {
      case smd.Token.Code_Block:
      case smd.Token.Code_Fence:
        // Code that is wider than the page can be scrolled, also with the keyboard.
        return element('pre', { className: 'code', tabindex: '0' });
      case smd.Token.Checkbox:
        return element('input', { type: 'checkbox', disabled: true, 'aria-label': 'done' });
      case smd.Token.Image:
        return element('span', { className: 'image' });
      case smd.Token.Table_Row:
        return element('tr');
      case smd.Token.Table_Cell:
        return element(parent.previousElementSibling ? 'td' : 'th');
      default:
        return element(TAGS[type] ?? 'span');
    }
  }

  #set(type, value) {
    const { node } = this.#last();
    const address = safeAddress(value);
    if (type === smd.Attr.Href && address) {
      node.href = address;
      node.rel = 'noopener noreferrer nofollow';
      node.target = '_blank';
    } else if (type === smd.Attr.Href) {
      node.className = 'no-link';
    } else if (type === smd.Attr.Src) {
      node.prepend('[image: ');
      node.append(node.childNodes.length > 1 ? ', not loaded]' : 'no description, not loaded]');
    } else if (type === smd.Attr.Start && /^\d{1,9}$/.test(value)) {
      node.start = value;
    } else if (type === smd.Attr.Checked) {
      node.checked = true;
    }
  }
}

// Text without Markdown syntax can be shown immediately.
const PLAIN = /^[\p{L}\p{N}\s.,;:?]*$/u;

/** Writes Markdown into an element, piece by piece. */
export class MarkdownWriter {
  #renderer;
  #parser;
  text = '';

  constructor(root) {
    this.#renderer = new Renderer(root);
    this.#parser = smd.parser(this.#renderer);
  }

  write(text) {
    this.text += text;
    this.#renderer.hideTail();
    smd.parser_write(this.#parser, text);
    const { pending } = this.#parser;
    if (PLAIN.test(pending) && prose(pending) === pending) this.#renderer.showTail(pending);
  }

  end() {
    this.#renderer.hideTail();
    smd.parser_end(this.#parser);
  }
}
