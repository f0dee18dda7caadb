// What a session is: limits against use, what keeps it in, when it ends, and its snapshots.
import { get, send } from '../lib/api';
import { bytes, duration, parseSize, percent } from '../lib/format';
import { usePoll } from '../lib/poll';
import { now, policy } from '../lib/state';
import type { Isolation, Session, Workspace } from '../lib/types';
import { ask } from '../parts/dialog';
import { Ago, ErrorBox, Facts, Field, Loading, Meter, Scroll, WorkButton } from '../parts/small';
import { Snapshots } from '../parts/snapshots';
import { attempt } from '../parts/toast';

const TAGS = { enforced: 'tag-good', accounted: 'tag-warn', 'not enforced': 'tag-bad' } as const;

export const IsolationTable = ({ controls }: { controls: Isolation[string] }) => (
  <Scroll label="Controls">
    <table class="plain-table">
      <thead>
        <tr>
          <th scope="col">Control</th>
          <th scope="col">State</th>
          <th scope="col">How</th>
        </tr>
      </thead>
      <tbody>
        {Object.entries(controls).map(([name, control]) => (
          <tr key={name}>
            <th scope="row">{name.replace(/_/g, ' ')}</th>
            <td>
              <span class={`tag ${TAGS[control.state]}`}>{control.state}</span>
            </td>
            <td class="quiet">{control.detail}</td>
          </tr>
        ))}
      </tbody>
    </table>
  </Scroll>
);

const askKeep = (id: string): void =>
  ask({
    title: 'Keep it open',
    body: (
      <>
        <p>It is not closed for idleness for so long. It may still be put to sleep, which loses nothing but its processes.</p>
        <Field label="For how many hours" hint="0 takes an earlier promise back; 720 at most.">
          <input name="hours" type="number" min="0" max="720" step="any" required value="8" />
        </Field>
      </>
    ),
    action: 'Keep open',
    work: (form) => send('POST', `/sessions/${id}/keepalive`, { seconds: Math.round(Number(form.get('hours')) * 3600) }),
  });

export const Info = ({ session }: { session: Session }) => {
  const id = session.session_id;
  const isolation = usePoll((signal) => get<Isolation>('/isolation', {}, signal), 60000, []);
  const stored = usePoll((signal) => get<Workspace>(`/workspaces/${id}`, {}, signal), 10000, [id]);
  const runtime = policy.value?.runtimes.find((row) => row.alias === session.runtime);
  const limit = session.usage?.memory_limit_bytes ?? parseSize(runtime?.mem_limit ?? null);
  const controls = isolation.value?.[session.runtime];
  const diskWords = controls?.disk?.detail ?? '';
  const until = session.expires_at;
  return (
    <div class="info">
      <div class="cards">
        <section class="card">
          <h2>Use against limits</h2>
          {session.usage ? (
            <>
              <Meter label="Memory" used={session.usage.memory_bytes} limit={limit} text={`${bytes(session.usage.memory_bytes)}${limit ? ` of ${bytes(limit)}` : ''}`} />
              <Meter label="Processor" used={session.usage.cpu_percent} limit={runtime?.cpus ? runtime.cpus * 100 : null} text={`${percent(session.usage.cpu_percent)}${runtime?.cpus ? ` of ${runtime.cpus * 100} %` : ''}`} />
              <Meter label="Processes" used={session.usage.pids} limit={runtime?.pids_limit ?? null} />
            </>
          ) : (
            <p class="quiet">{session.state === 'hibernated' ? 'Asleep: it uses no memory and no processor.' : session.frozen ? 'Frozen: it holds its memory and uses no processor.' : 'The sandbox did not answer in time.'}</p>
          )}
          <Meter label="Disk" used={stored.value?.size_bytes ?? null} limit={null} text={stored.value ? bytes(stored.value.size_bytes) : '–'} none={diskWords} />
          <p class="quiet">
            {stored.value?.measured_at ? (
              <>
                Disk measured <Ago at={stored.value.measured_at} />
              </>
            ) : (
              'The disk is measured by a sweep in the background.'
            )}
          </p>
        </section>
        <section class="card">
          <h2>Session</h2>
          <Facts
            rows={[
              ['Runtime', runtime ? `${session.runtime} (${runtime.image})` : session.runtime],
              ['Tenant', session.tenant ?? 'none'],
              ['Opened', <Ago at={session.created_at} />],
              ['Last used', <Ago at={session.last_activity} />],
              ['Commands', session.running_commands ? `${session.running_commands} running` : 'none running'],
              ['Closes', until ? <span>in {duration(until - now.value)}, if nothing happens</span> : 'not while a command runs'],
              ['Network', runtime?.network_mode ?? 'none'],
              ['Work dir', <span class="mono">{policy.value?.work_dir ?? ''}</span>],
            ]}
          />
          <div class="toolbar">
            <button type="button" onClick={() => askKeep(id)}>
              Keep it open…
            </button>
            <WorkButton onWork={() => attempt(() => send('POST', `/sessions/${id}/keepalive`, { seconds: 0 }), 'It counts as used now.')}>Touch</WorkButton>
          </div>
        </section>
        <Snapshots kind="sessions" id={id} canRestore={false} />
      </div>
      <section class="card">
        <h2>Isolation in force</h2>
        {isolation.error !== null && <ErrorBox error={isolation.error} retry={isolation.refresh} />}
        {controls ? <IsolationTable controls={controls} /> : isolation.error === null && (isolation.value ? <p class="quiet">The runtime of this session is not configured any more.</p> : <Loading what="isolation" />)}
      </section>
    </div>
  );
};
