// Asks the user to approve a call. It shows exactly which call would run.

import { argumentList } from './argument_list.js';
import { element } from './elements.js';
import { isCut } from './text_box.js';
import { exactText, prose } from './visible_text.js';

let count = 0;

// What "Always allow" approves, apart from the call itself.
const ALWAYS = { scope: 'any_arguments', duration: 'session' };

/** `decide(isApproved, reason, always)` sends the verdict. `always` are the terms for further calls, or null. */
export class ApprovalCard {
  #buttons;
  #status = element('p', { role: 'status' });
  #reason = element('input', { type: 'text', 'aria-label': 'Reason for a denial', placeholder: 'Reason (optional)' });

  constructor(call, decide) {
    const whose = call.path?.length ? 'A sub-agent wants to run' : 'The agent wants to run';
    const id = `approval-${count += 1}`;
    const title = element('h2', { id }, `${whose} `, element('code', { className: 'exact' }, exactText(call.name)));
    const approve = element('button', { type: 'button', className: 'approve' }, 'Approve');
    const always = element('button', { type: 'button', className: 'always' }, 'Always allow in this chat');
    const deny = element('button', { type: 'button', className: 'deny' }, 'Deny');
    this.#buttons = [approve, deny, always, this.#reason];
    approve.addEventListener('click', () => this.#approve(decide, null));
    always.addEventListener('click', () => this.#approve(decide, ALWAYS));
    deny.addEventListener('click', () => this.#send(false, decide, null));
    this.node = element(
      'section',
      { className: 'approval', 'aria-labelledby': id },
      title,
      argumentList(call.arguments),
      element('div', { className: 'row' }, approve, deny, always, this.#reason),
      this.#status,
    );
  }

  focus() {
    this.#buttons[1].focus({ preventScroll: true });
  }

  #approve(decide, always) {
    if (isCut(this.node)) this.#status.textContent = 'Show all of the arguments before you approve them.';
    else this.#send(true, decide, always);
  }

  async #send(isApproved, decide, always) {
    this.#enable(false);
    if (always) this.#status.textContent = 'Approved, and further calls of this tool in this chat.';
    else this.#status.textContent = isApproved ? 'Approved.' : 'Denied.';
    try {
      const { missing } = await decide(isApproved, this.#reason.value, always);
      if (missing) this.#status.textContent += ` ${missing} more to answer.`;
    } catch (error) {
      this.#status.replaceChildren(prose(error.message));
      this.#enable(true);
    }
  }

  #enable(isEnabled) {
    for (const button of this.#buttons) button.disabled = !isEnabled;
  }
}
