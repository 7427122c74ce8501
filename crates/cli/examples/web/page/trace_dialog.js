// The trace of the last runs of a session, step by step.

import { byId, element } from './elements.js';
import { get, sessionPath } from './server.js';
import { textBox } from './text_box.js';
import { exactText, markedText } from './visible_text.js';
import { stepWords } from './words.js';

export async function showTrace(session) {
  const runs = await get(sessionPath(session, 'trace'));
  const root = byId('trace-runs');
  const nothing = 'The server has performed no runs of this session since it was started.';
  root.replaceChildren(...(runs.length ? runs.map(runSection) : [element('p', {}, nothing)]));
  byId('trace').showModal();
}

function runSection({ run, steps }) {
  const names = new Map(steps.map(({ action }) => [action.call_id, action.tool]));
  const items = steps.map((step) => {
    const within = (step.within ?? []).map((id) => `in ${names.get(id) ?? 'a sub-agent'}: `).join('');
    const summary = element('summary', {}, `${step.step}. `, exactText(within + stepWords(step.action)));
    return element('details', {}, summary, textBox(step.text, markedText));
  });
  // Within a session, the part of the id after the session's is unique.
  const id = run.slice(run.lastIndexOf(':') + 1);
  const title = element('h3', {}, 'Run ', element('code', { className: 'exact' }, exactText(id)));
  return element('section', {}, title, ...items);
}
