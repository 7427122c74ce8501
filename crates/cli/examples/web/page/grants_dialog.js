// The calls that are always allowed in a session, and the buttons that revoke these permissions.

import { argumentList } from './argument_list.js';
import { byId, element } from './elements.js';
import { get, post, sessionPath } from './server.js';
import { exactText, prose } from './visible_text.js';

export const readGrants = async (session) => (await get(sessionPath(session, 'grants'))).grants;

/** `revoked()` is called after a permission was revoked. */
export async function showGrants(session, revoked) {
  const grants = await readGrants(session);
  const revoke = async (grant) => {
    await post(sessionPath(session, 'grants/revoke'), { grant_id: grant.id });
    await revoked();
  };
  const nothing = element('li', {}, 'No call is always allowed.');
  const items = grants.map((grant, number) => grantItem(grant, number, () => revoke(grant)));
  byId('grant-list').replaceChildren(...(items.length ? items : [nothing]));
  byId('grants').showModal();
}

function grantItem(grant, number, revoke) {
  const status = element('p', { role: 'status' });
  const id = `grant-${number}`;
  const button = element('button', { type: 'button', className: 'revoke', 'aria-describedby': id }, 'Revoke');
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      await revoke();
      status.textContent = 'Revoked: the next call asks again.';
    } catch (error) {
      status.replaceChildren(prose(error.message));
      button.disabled = false;
    }
  });
  const isSame = grant.scope === 'same_arguments';
  return element(
    'li',
    { className: 'grant' },
    element('p', { id }, ...grantWords(grant)),
    isSame ? argumentList(grant.arguments ?? '') : '',
    button,
    status,
  );
}

/** Which calls of which agent are allowed. */
function grantWords({ tool, source, agent_path: path, scope, includes_sub_agents: isInherited }) {
  const code = (text) => element('code', { className: 'exact' }, exactText(text));
  const words = [code(tool)];
  if (source) words.push(' of ', code(source));
  if (scope === 'any_arguments') words.push(', with any arguments');
  else if (scope === 'same_arguments') words.push(', with these arguments');
  else words.push(', if the condition ', code(scope.predicate), ' holds');
  for (const agent of path ?? []) words.push(', by the sub-agent ', code(agent));
  if (isInherited) words.push(', and by its sub-agents');
  return words;
}
