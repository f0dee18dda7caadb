// Snapshots of a workspace: made, removed, and gone back to.
import { get, send } from '../lib/api';
import { usePoll } from '../lib/poll';
import type { Snapshot } from '../lib/types';
import { ask } from './dialog';
import { Menu } from './menu';
import { Ago, ErrorBox, Field, Loading } from './small';
import { say } from './toast';

export const Snapshots = ({ kind, id, canRestore }: { kind: 'sessions' | 'workspaces'; id: string; canRestore: boolean }) => {
  const base = `/${kind}/${encodeURIComponent(id)}/snapshots`;
  const { value, error, refresh } = usePoll((signal) => get<{ snapshots: Snapshot[] }>(base, {}, signal), 15000, [base]);

  const make = () =>
    ask({
      title: 'Make a snapshot',
      body: (
        <Field label="Name" hint="May stay empty. A snapshot keeps the files as they are now; it goes with the workspace.">
          <input name="name" pattern={'[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}'} autocomplete="off" spellcheck={false} />
        </Field>
      ),
      action: 'Make it',
      work: async (form, signal) => {
        await send('POST', base, { name: String(form.get('name')) || null }, {}, signal);
        refresh();
      },
    });
  const remove = (snapshot: Snapshot) =>
    ask({
      title: `Remove snapshot ${snapshot.name ?? snapshot.snapshot_id}?`,
      body: <p>The files as they were then are removed for good. Those of now stay.</p>,
      action: 'Remove',
      danger: true,
      work: async () => {
        await send('DELETE', `${base}/${snapshot.snapshot_id}`);
        refresh();
      },
    });
  const restore = (snapshot: Snapshot) =>
    ask({
      title: `Go back to ${snapshot.name ?? snapshot.snapshot_id}?`,
      body: (
        <p>
          <strong>The files of now are replaced by those of the snapshot.</strong> Make another snapshot first to be able to come back.
        </p>
      ),
      action: 'Go back',
      danger: true,
      work: async () => {
        await send('POST', `/workspaces/${encodeURIComponent(id)}/snapshots/${snapshot.snapshot_id}/restore`);
        say('The workspace is as the snapshot was.');
      },
    });
  return (
    <section class="card">
      <div class="card-head">
        <h2>Snapshots</h2>
        <button type="button" onClick={make}>
          Make one…
        </button>
      </div>
      {error !== null && <ErrorBox error={error} retry={refresh} />}
      {!value && error === null && <Loading what="snapshots" />}
      {value && !value.snapshots.length && <p class="quiet">None yet. A snapshot keeps all files as they are at one moment{canRestore ? ', to go back to or to fork from' : ''}.</p>}
      <ul class="rows">
        {value?.snapshots.map((snapshot) => (
          <li key={snapshot.snapshot_id}>
            <span class="mono clip">{snapshot.name ?? snapshot.snapshot_id}</span>
            <Ago at={snapshot.created_at} />
            <Menu
              label={`Actions on snapshot ${snapshot.name ?? snapshot.snapshot_id}`}
              items={[...(canRestore ? [{ label: 'Go back to it…', action: () => restore(snapshot) }] : []), { label: 'Remove…', danger: true, action: () => remove(snapshot) }]}
            />
          </li>
        ))}
      </ul>
    </section>
  );
};
