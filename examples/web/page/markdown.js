// Renders Markdown while it streams. The text comes from a model, which may repeat text of an attacker: no HTML is
// rendered, links have only http, https and mailto addresses, and no image is loaded.

import * as smd from './streaming-markdown/smd.js';
import { element } from './elements.js';
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

class Renderer {
  #nodes;
  #tail = document.createTextNode('');

  constructor(root) {
    this.#nodes = [root];
    this.data = this;
    this.add_token = (_, type) => this.#begin(type);
    this.end_token = () => this.#nodes.pop();
    this.add_text = (_, text) => this.#node().append(prose(text));
    this.set_attr = (_, type, value) => this.#set(type, value);
  }

  #node() {
    return this.#nodes[this.#nodes.length - 1];
  }

  /** Shows text whose meaning the parser has not decided yet, until more text arrives. */
  showTail(text) {
    this.#tail.remove();
    this.#tail = document.createTextNode(text);
    if (text) this.#node().append(this.#tail);
  }

  hideTail() {
    this.#tail.remove();
  }

  #begin(type) {
    const parent = this.#node();
    this.#nodes.push(type === smd.Token.Document ? parent : parent.appendChild(this.#make(parent, type)));
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
    const node = this.#node();
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
