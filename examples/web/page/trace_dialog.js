// The trace of the last runs of a session, step by step.

import { byId, element } from './elements.js';
import { get, sessionPath } from './server.js';
import { textBox } from './text_box.js';
import { exactText, markedText } from './visible_text.js';

export async function showTrace(session) {
  const runs = await get(sessionPath(session, 'trace'));
  const root = byId('trace-runs');
  const nothing = 'The server has performed no runs of this session since it was started.';
  root.replaceChildren(...(runs.length ? runs.map(runSection) : [element('p', {}, nothing)]));
  byId('trace').showModal();
}

function runSection({ run, steps }) {
  const items = steps.map((step) => {
    const what = step.action.tool ?? step.action.type;
    const how = step.action.stop_reason ?? step.action.text ?? '';
    const within = step.within?.length ? `in ${step.within.join(' / ')}: ` : '';
    const summary = element('summary', {}, `${step.step}. `, exactText(`${within}${what}`), ' ', exactText(how));
    return element('details', {}, summary, textBox(step.text, markedText));
  });
  return element('section', {}, element('h3', {}, `Run ${run.slice(0, 8)}`), ...items);
}
