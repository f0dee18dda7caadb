// What can be done to a session or a workspace, with the questions that belong to it.
import { send } from '../lib/api';
import { plural } from '../lib/format';
import { go } from '../lib/router';
import { policy, refreshPolicy, refreshSessions, stateOf } from '../lib/state';
import type { Session, Workspace } from '../lib/types';
import { ask } from './dialog';
import type { MenuItem } from './menu';
import { Field } from './small';
import { attempt, complain, say, transfer } from './toast';

export const NAME_PATTERN = '[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}';
const at = (id: string): string => `/sessions/${encodeURIComponent(id)}`;

// Mostly over before anybody wonders; what is not says so, and can be called off.
const QUIET_MS = 700;
async function patiently(doing: string, method: string, path: string, done: string, json?: unknown): Promise<boolean> {
  const went = await attempt(() => transfer(doing, (signal) => send(method, path, json, {}, signal), QUIET_MS), done, doing);
  await refreshSessions();
  return went;
}

export const hibernate = (id: string): Promise<boolean> => patiently(`Hibernating ${id}`, 'POST', `${at(id)}/hibernate`, `${id} is asleep.`);
export const wake = (id: string): Promise<boolean> => patiently(`Waking ${id}`, 'POST', `${at(id)}/wake`, `${id} is awake.`);

const commandsOf = (session: Session): string =>
  session.running_commands ? `${plural(session.running_commands, 'command')} that runs in it ${session.running_commands === 1 ? 'is' : 'are'} stopped. ` : '';

export const askClose = (session: Session): void =>
  ask({
    title: `Close ${session.session_id}?`,
    body: (
      <>
        <p>{commandsOf(session)}Its processes end and its token stops working.</p>
        <p>Its files stay: they are under Workspaces, and a new session can be opened on them.</p>
      </>
    ),
    action: 'Close session',
    danger: true,
    work: async () => {
      await send('DELETE', at(session.session_id));
      say(`${session.session_id} is closed.`);
      await refreshSessions();
    },
  });

export const askPurge = (session: Session, then?: () => void): void =>
  ask({
    title: `Purge ${session.session_id}?`,
    body: (
      <>
        <p>
          <strong>All of its files and snapshots are removed for good.</strong> There is no way back.
        </p>
        <p>{commandsOf(session)}Its processes end and its token stops working.</p>
        <Confirm id={session.session_id} />
      </>
    ),
    action: 'Purge for good',
    danger: true,
    work: async () => {
      await send('DELETE', at(session.session_id), undefined, { purge: true });
      say(`${session.session_id} is purged.`);
      await refreshSessions();
      then?.();
    },
  });

export const askPurgeWorkspace = (workspace: Workspace, size: string, then: () => void): void =>
  ask({
    title: `Purge workspace ${workspace.id}?`,
    body: (
      <>
        <p>
          <strong>
            {workspace.file_count === null ? 'All files' : plural(workspace.file_count, 'entry', 'entries')} ({size}) and all snapshots are removed for good.
          </strong>{' '}
          There is no way back.
        </p>
        <Confirm id={workspace.id} />
      </>
    ),
    action: 'Purge for good',
    danger: true,
    work: async () => {
      await send('DELETE', `/workspaces/${encodeURIComponent(workspace.id)}`);
      say(`${workspace.id} is purged.`);
      then();
    },
  });

// The name typed once more: nothing is purged by a slip.
const Confirm = ({ id }: { id: string }) => (
  <Field label={`Type ${id} to confirm`}>
    <input name="confirm" required pattern={id.replace(/\./g, '\\.')} autocomplete="off" spellcheck={false} title={id} />
  </Field>
);

const RuntimeField = () => (
  <Field label="Runtime">
    <select name="runtime">
      {(policy.value?.runtimes ?? []).map((runtime) => (
        <option key={runtime.alias} value={runtime.alias} selected={runtime.alias === policy.value?.default_runtime}>
          {runtime.alias}
          {runtime.description && runtime.description !== runtime.alias ? ` – ${runtime.description}` : ''}
        </option>
      ))}
    </select>
  </Field>
);

export function askOpen(): void {
  const show = () =>
    ask({
      title: 'Open a session',
      body: (
        <>
          <RuntimeField />
          <Field label="Name" hint="Left empty, one is made up. The name of a stored workspace opens a session on its files.">
            <input name="id" pattern={NAME_PATTERN} autocomplete="off" spellcheck={false} title="Letters, digits, dot, underscore and hyphen; 64 at most" />
          </Field>
          <Field label="Tenant" hint="Who it belongs to; may stay empty.">
            <input name="tenant" pattern={NAME_PATTERN} autocomplete="off" spellcheck={false} title="Letters, digits, dot, underscore and hyphen; 64 at most" />
          </Field>
        </>
      ),
      action: 'Open',
      work: async (form, signal) => {
        const wanted = {
          runtime: String(form.get('runtime') ?? '') || undefined,
          session_id: String(form.get('id')) || undefined,
          tenant: String(form.get('tenant')) || undefined,
        };
        const opened = await send<{ session: Session }>('POST', '/sessions', wanted, {}, signal);
        await refreshSessions();
        go('sessions', opened.session.session_id, 'terminal');
      },
    });
  if (policy.value) show();
  else refreshPolicy().then(show, complain);
}

export async function openOn(workspace: Workspace): Promise<void> {
  const wanted = { session_id: workspace.id, tenant: workspace.tenant ?? undefined, runtime: workspace.runtime ?? undefined };
  if (await patiently(`Opening a session on ${workspace.id}`, 'POST', '/sessions', '', wanted)) go('sessions', workspace.id, 'files');
}

export const askFork = (kind: 'sessions' | 'workspaces', id: string): void =>
  ask({
    title: `Fork ${id}`,
    body: (
      <>
        <p>A new session on a copy of its files, as they are now.</p>
        <Field label="Name of the new session" hint="Left empty, one is made up.">
          <input name="id" pattern={NAME_PATTERN} autocomplete="off" spellcheck={false} />
        </Field>
      </>
    ),
    action: 'Fork',
    work: async (form, signal) => {
      const forked = await send<{ session: Session }>('POST', `/${kind}/${encodeURIComponent(id)}/fork`, { session_id: String(form.get('id')) || null }, {}, signal);
      await refreshSessions();
      go('sessions', forked.session.session_id, 'files');
    },
  });

export const sessionActions = (session: Session, then?: () => void): MenuItem[] => {
  const asleep = stateOf(session) === 'asleep';
  return [
    asleep || stateOf(session) !== 'running' ? { label: 'Wake', action: () => void wake(session.session_id) } : { label: 'Hibernate', action: () => void hibernate(session.session_id) },
    ...(stateOf(session) === 'frozen' ? [{ label: 'Hibernate', action: () => void hibernate(session.session_id) }] : []),
    { label: 'Fork…', action: () => askFork('sessions', session.session_id) },
    { label: 'Close…', danger: true, action: () => askClose(session) },
    { label: 'Purge…', danger: true, action: () => askPurge(session, then) },
  ];
};
