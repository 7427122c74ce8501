// The trace of the last runs of a session, step by step.

import { byId, element } from './elements.js';
import { get, sessionPath } from './server.js';

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
    const summary = element('summary', {}, `${step.step}. ${within}${what} ${how}`);
    return element('details', {}, summary, element('pre', { className: 'value', tabindex: '0' }, step.text));
  });
  return element('section', {}, element('h3', {}, `Run ${run.slice(0, 8)}`), ...items);
}
