// What is allowed: read it, and change what may be changed while the broker runs.
import { ApiError, events, get, send } from '../lib/api';
import { bytes, number, parseSize } from '../lib/format';
import { usePoll } from '../lib/poll';
import { policy, refreshPolicy, refreshSessions, tenants } from '../lib/state';
import type { Isolation, Policy, Tenant } from '../lib/types';
import { NAME_PATTERN } from '../parts/actions';
import { ask } from '../parts/dialog';
import { Empty, ErrorBox, Facts, Field, Loading, Scroll, WorkButton } from '../parts/small';
import { complain, say, transfer } from '../parts/toast';
import { IsolationTable } from './info';
import './session.css';

type Kind = 'count' | 'seconds' | 'bytes' | 'size' | 'float';

interface Setting {
  key: keyof Policy;
  title: string;
  kind: Kind;
  hint: string;
  nullable: boolean;
}

const CEILINGS: Setting[] = [
  { key: 'max_sessions', title: 'Live sandboxes', kind: 'count', hint: 'Sessions with a container at once.', nullable: true },
  { key: 'max_open_sessions', title: 'Open sessions', kind: 'count', hint: 'Live and asleep together; not fewer than live ones.', nullable: true },
  { key: 'max_sessions_per_tenant', title: 'Open sessions of a tenant', kind: 'count', hint: 'For tenants without a ceiling of their own.', nullable: true },
  { key: 'evict_idle_after', title: 'May be put to sleep after', kind: 'seconds', hint: 'Idle for so long, to make room for another. Empty: never.', nullable: true },
];
const TIMES: Setting[] = [
  { key: 'idle_timeout', title: 'Closed after idling', kind: 'seconds', hint: 'The files stay.', nullable: false },
  { key: 'execute_timeout', title: 'Longest command', kind: 'seconds', hint: 'Where the call names no other.', nullable: false },
  { key: 'workspace_ttl', title: 'Workspaces kept', kind: 'seconds', hint: 'After their last use. Empty: for ever.', nullable: true },
  { key: 'container_ttl', title: 'Stopped containers kept', kind: 'seconds', hint: 'Empty: as long as their workspace.', nullable: true },
  { key: 'max_read_bytes', title: 'Largest file of the classic wire', kind: 'bytes', hint: 'To read or write in one call.', nullable: false },
];
const LIMITS: Setting[] = [
  { key: 'mem_limit', title: 'Memory', kind: 'size', hint: 'Such as 512m or 2g.', nullable: true },
  { key: 'memswap_limit', title: 'Memory and swap', kind: 'size', hint: 'Not below the memory.', nullable: true },
  { key: 'cpus', title: 'Processors', kind: 'float', hint: 'Such as 1.5.', nullable: true },
  { key: 'cpu_shares', title: 'Processor shares', kind: 'count', hint: 'Against other sandboxes, when processors are short.', nullable: true },
  { key: 'pids_limit', title: 'Processes', kind: 'count', hint: 'Threads count.', nullable: true },
  { key: 'tmpfs_size', title: 'Size of /tmp', kind: 'size', hint: 'In memory.', nullable: true },
];

const UNITS: Record<Kind, string> = { count: '', seconds: 's', bytes: 'bytes', size: '', float: '' };
const show = (setting: Setting, value: unknown): string => {
  if (value === null || value === undefined || value === '') return 'none';
  if (setting.kind === 'seconds') {
    const s = Number(value);
    return s >= 86400 && s % 86400 === 0 ? `${s / 86400} d` : s >= 3600 && s % 3600 === 0 ? `${s / 3600} h` : s >= 60 && s % 60 === 0 ? `${s / 60} min` : `${s} s`;
  }
  if (setting.kind === 'bytes') return bytes(Number(value));
  if (setting.kind === 'size') return String(value);
  return number(Number(value));
};

function parse(setting: Setting, text: string): unknown {
  if (text.trim() === '') return null;
  return setting.kind === 'size' ? text.trim() : Number(text);
}

const edit = (title: string, settings: Setting[], current: Policy): void =>
  ask({
    title,
    body: (
      <>
        {settings.map((setting) => (
          <Field key={setting.key} label={`${setting.title}${UNITS[setting.kind] ? ` (${UNITS[setting.kind]})` : ''}`} hint={`${setting.hint}${setting.nullable && !setting.hint.includes('Empty') ? ' Empty: none.' : ''}`}>
            <input
              name={setting.key}
              type={setting.kind === 'size' ? 'text' : 'number'}
              min={setting.kind === 'size' ? undefined : '0'}
              step={setting.kind === 'float' ? 'any' : '1'}
              required={!setting.nullable}
              value={current[setting.key] === null ? '' : String(current[setting.key])}
            />
          </Field>
        ))}
        <p class="quiet">In force at once, and kept over a restart. Sandboxes that run keep the limits they were started with.</p>
      </>
    ),
    action: 'Save',
    work: async (form) => {
      const change = Object.fromEntries(settings.map((setting) => [setting.key, parse(setting, String(form.get(setting.key)))]).filter(([key, value]) => value !== current[key as keyof Policy]));
      if (Object.keys(change).length) {
        policy.value = await send<Policy>('PUT', '/policy', change);
        say('The policy is changed.');
        void refreshSessions();
      }
    },
  });

const Group = ({ title, settings, current }: { title: string; settings: Setting[]; current: Policy }) => (
  <section class="card">
    <div class="card-head">
      <h2>{title}</h2>
      <button type="button" aria-label={`Change: ${title}`} onClick={() => edit(title, settings, current)}>
        Change…
      </button>
    </div>
    <Facts short rows={settings.map((setting) => [setting.title, <span title={setting.hint}>{show(setting, current[setting.key])}</span>])} />
  </section>
);

const TENANT_CEILINGS: [keyof Tenant, string][] = [
  ['max_open_sessions', 'Open sessions'],
  ['max_resident_sessions', 'Live sandboxes'],
  ['max_running_commands', 'Running commands'],
  ['max_disk_bytes', 'Disk (such as 10g)'],
];

const editTenant = (tenant: Tenant | null): void =>
  ask({
    title: tenant ? `Ceilings of ${tenant.tenant}` : 'Ceilings of a tenant',
    body: (
      <>
        {!tenant && (
          <Field label="Tenant">
            <input name="tenant" required pattern={NAME_PATTERN} autocomplete="off" spellcheck={false} />
          </Field>
        )}
        {TENANT_CEILINGS.map(([key, title]) => (
          <Field key={key} label={title} hint="Empty: none.">
            <input name={key} pattern={key === 'max_disk_bytes' ? '\\d+(\\.\\d+)?[kKmMgGtT]?' : '\\d+'} value={tenant?.[key] === null || tenant?.[key] === undefined ? '' : String(tenant[key])} autocomplete="off" />
          </Field>
        ))}
        <p class="quiet">A ceiling below what is held takes nothing away; it refuses more.</p>
      </>
    ),
    action: 'Save',
    work: async (form) => {
      const name = tenant?.tenant ?? String(form.get('tenant'));
      const change = Object.fromEntries(TENANT_CEILINGS.map(([key]) => [key, String(form.get(key)).trim() === '' ? null : Math.round(parseSize(String(form.get(key)).trim()) ?? 0)]));
      await send('PUT', `/tenants/${name}`, change);
      await refreshSessions();
      say(`The ceilings of ${name} are changed.`);
    },
  });

const ofLimit = (used: number | null, limit: number | null, format: (value: number | null) => string = number) => (
  <>
    {format(used)}
    <span class="quiet"> / {limit === null ? '∞' : format(limit)}</span>
  </>
);

const Tenants = () => (
  <section class="card">
    <div class="card-head">
      <h2>Tenants</h2>
      <button type="button" onClick={() => editTenant(null)}>
        Set ceilings of another…
      </button>
    </div>
    {tenants.value?.length ? (
      <Scroll label="Table of tenants">
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Tenant</th>
              <th scope="col" class="end">Open</th>
              <th scope="col" class="end">Live</th>
              <th scope="col" class="end">Commands</th>
              <th scope="col" class="end">Disk</th>
              <th scope="col"><span class="unseen">Actions</span></th>
            </tr>
          </thead>
          <tbody>
            {tenants.value.map((tenant) => (
              <tr key={tenant.tenant}>
                <th scope="row">{tenant.tenant}</th>
                <td class="end">{ofLimit(tenant.open_sessions, tenant.max_open_sessions ?? policy.value?.max_sessions_per_tenant ?? null)}</td>
                <td class="end">{ofLimit(tenant.resident_sessions, tenant.max_resident_sessions)}</td>
                <td class="end">{ofLimit(tenant.running_commands, tenant.max_running_commands)}</td>
                <td class="end">{ofLimit(tenant.disk_bytes, tenant.max_disk_bytes, bytes)}</td>
                <td class="end">
                  <button type="button" aria-label={`Change the ceilings of ${tenant.tenant}`} onClick={() => editTenant(tenant)}>
                    Change…
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    ) : (
      <Empty title="No tenant holds anything" icon="policy">
        Sessions that are opened with a tenant are counted here, and can be held to ceilings of its own.
      </Empty>
    )}
  </section>
);

interface Image {
  alias: string;
  image_id: string | null;
  detail: string | null;
}

// Have the image on the engine before it is needed, and tell how that goes. It goes on when nobody listens any more.
async function prepare(alias: string): Promise<void> {
  const work = async (signal: AbortSignal, progress: (done: number, total: number | null, text?: string) => void) => {
    for await (const event of events(`/runtimes/${alias}/prepare`, {}, signal, 'POST')) {
      const told = JSON.parse(event.data);
      if (event.event === 'progress') progress(0, null, told.text);
      else if (event.event === 'ready') return say(told.was_here ? `The image of ${alias} was here.` : `The image of ${alias} is ready.`);
      else if (event.event === 'failed') throw new ApiError(told.status, told.detail);
    }
  };
  await transfer(`Preparing ${alias}`, work).catch((reason) => complain(reason, `Preparing ${alias}`));
}

const Runtimes = ({ current }: { current: Policy }) => {
  const images = usePoll((signal) => get<{ runtimes: Image[] }>('/runtimes', {}, signal), 30000, []);
  const imageOf = (alias: string) => images.value?.runtimes.find((image) => image.alias === alias);
  return (
  <section class="card">
    <h2>Runtimes</h2>
    <Scroll label="Table of runtimes">
      <table class="plain-table">
        <thead>
          <tr>
            <th scope="col">Alias</th>
            <th scope="col">Image</th>
            <th scope="col" class="end">Memory</th>
            <th scope="col" class="end">Processors</th>
            <th scope="col" class="end">Processes</th>
            <th scope="col">Network</th>
            <th scope="col">On the engine</th>
          </tr>
        </thead>
        <tbody>
          {current.runtimes.map((runtime) => (
            <tr key={runtime.alias}>
              <th scope="row">
                {runtime.alias} {runtime.alias === current.default_runtime && <span class="tag">default</span>}
              </th>
              <td class="mono">{runtime.image}</td>
              <td class="end">{runtime.mem_limit ?? 'none'}</td>
              <td class="end">{runtime.cpus ?? 'none'}</td>
              <td class="end">{runtime.pids_limit ?? 'none'}</td>
              <td>{runtime.network_mode ?? 'none'}</td>
              <td>
                {!imageOf(runtime.alias) ? (
                  <span class="quiet">–</span>
                ) : imageOf(runtime.alias)!.image_id ? (
                  <span class="state">
                    <i aria-hidden="true" />
                    here
                  </span>
                ) : (
                  <WorkButton label={`Prepare the image of ${runtime.alias}`} onWork={() => prepare(runtime.alias).then(images.refresh)}>
                    Prepare
                  </WorkButton>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  </section>
  );
};

export const PolicyView = () => {
  const current = policy.value;
  const asked = usePoll(refreshPolicy, 30000, []);
  const isolation = usePoll((signal) => get<Isolation>('/isolation', {}, signal), 60000, []);
  if (!current) return asked.error ? <div class="view"><h1>Policy</h1><ErrorBox error={asked.error} retry={asked.refresh} /></div> : <Loading what="policy" />;
  return (
    <div class="view">
      <div class="view-head">
        <h1>Policy</h1>
        <p class="quiet">What is put here is remembered; a file of overrides, where one is set, goes before it.</p>
      </div>
      <div class="cards">
        <Group title="Ceilings" settings={CEILINGS} current={current} />
        <Group title="Limits of a sandbox" settings={LIMITS} current={current} />
        <Group title="Times and sizes" settings={TIMES} current={current} />
      </div>
      <Tenants />
      <Runtimes current={current} />
      {isolation.error !== null && <ErrorBox error={isolation.error} retry={isolation.refresh} />}
      {Object.entries(isolation.value ?? {}).map(([alias, controls]) => (
        <section key={alias} class="card">
          <h2>Isolation of {alias}</h2>
          <IsolationTable controls={controls} />
        </section>
      ))}
    </div>
  );
};
