// Asks the user to approve a call. It shows exactly which call would run.

import { element } from './elements.js';
import { argumentList } from './tool_card.js';

/** `decide(isApproved, reason)` sends the verdict. */
export class ApprovalCard {
  #buttons;
  #status = element('p', { role: 'status' });
  #reason = element('input', { type: 'text', 'aria-label': 'Reason for a denial', placeholder: 'Reason (optional)' });

  constructor(call, decide) {
    const whose = call.path?.length ? 'A sub-agent wants to run' : 'The agent wants to run';
    const title = element('h2', {}, `${whose} `, element('code', {}, call.name));
    const approve = element('button', { type: 'button', className: 'approve' }, 'Approve');
    const deny = element('button', { type: 'button', className: 'deny' }, 'Deny');
    this.#buttons = [approve, deny, this.#reason];
    approve.addEventListener('click', () => this.#send(true, decide));
    deny.addEventListener('click', () => this.#send(false, decide));
    this.node = element(
      'section',
      { className: 'approval', 'aria-label': `Approval of ${call.name}` },
      title,
      argumentList(call.arguments),
      element('div', { className: 'row' }, approve, deny, this.#reason),
      this.#status,
    );
  }

  focus() {
    this.#buttons[1].focus({ preventScroll: true });
  }

  async #send(isApproved, decide) {
    this.#enable(false);
    this.#status.textContent = isApproved ? 'Approved.' : 'Denied.';
    try {
      const { missing } = await decide(isApproved, this.#reason.value);
      if (missing) this.#status.textContent += ` ${missing} more to answer.`;
    } catch (error) {
      this.#status.textContent = error.message;
      this.#enable(true);
    }
  }

  #enable(isEnabled) {
    for (const button of this.#buttons) button.disabled = !isEnabled;
  }
}
