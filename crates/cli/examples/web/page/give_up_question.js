// Asks whether calls that wait for approval may be given up, because a message of the user would do so.

import { byId, element } from './elements.js';

/** `send()` sends the message. */
export function askToGiveUp(count, send) {
  const [words, them] = count === 1
    ? ['A call waits for your approval. It will not run if you send the message.', 'it']
    : [`${count} calls wait for your approval. They will not run if you send the message.`, 'them'];
  const answer = (action) => () => {
    hideQuestion();
    action();
  };
  const showCalls = () => byId('approvals').scrollIntoView();
  byId('question').replaceChildren(
    element('p', {}, words),
    element(
      'div',
      { className: 'row' },
      element('button', { type: 'button', className: 'deny', onclick: answer(send) }, `Send without running ${them}`),
      element('button', { type: 'button', className: 'keep', onclick: answer(showCalls) }, `Keep ${them} waiting`),
    ),
  );
  byId('question').hidden = false;
}

export function hideQuestion() {
  byId('question').hidden = true;
  byId('question').replaceChildren();
}
