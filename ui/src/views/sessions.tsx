// Every open session, live.
import { signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { bytes, duration, exactTime, parseSize, percent, plural } from '../lib/format';
import { isAway } from '../lib/api';
import { hrefTo } from '../lib/router';
import { counts, limits, now, policy, refreshSessions, sessions, sessionsError, stateOf, STATE_TEXT } from '../lib/state';
import type { Session } from '../lib/types';
import { askOpen, sessionActions } from '../parts/actions';
import { Icon } from '../parts/icons';
import { Menu } from '../parts/menu';
import { Empty, ErrorBox, Loading, Meter, StateBadge } from '../parts/small';
import { type Column, type Group, type Sort, sorted, Table } from '../parts/table';

// Kept over a look at one session and back.
const filter = signal('');
const sort = signal<Sort>({ key: 'created', down: false });
const grouped = signal(false);
const folded = signal<Set<string>>(new Set());

// Parts of their own: they move each second, and the table need not be made anew for that.
const Idle = ({ since }: { since: number }) => {
  const idle = now.value - since;
  return <>{idle < 3 ? 'in use' : duration(idle)}</>;
};
const Age = ({ since }: { since: number }) => <span title={exactTime(since)}>{duration(now.value - since)}</span>;
const memoryLimit = (session: Session): number | null =>
  session.usage?.memory_limit_bytes ?? parseSize(policy.value?.runtimes.find((runtime) => runtime.alias === session.runtime)?.mem_limit ?? null);

const COLUMNS: Column<Session>[] = [
  {
    key: 'id',
    title: 'Session',
    by: (s) => s.session_id,
    cell: (s) => (
      <a class="mono" href={hrefTo('sessions', s.session_id, 'terminal')} title={s.session_id}>
        {s.session_id}
      </a>
    ),
    under: (s) => [s.tenant, s.running_commands ? s.running : null].filter(Boolean).join(': ') || s.runtime,
    wide: true,
  },
  { key: 'state', title: 'State', by: (s) => stateOf(s), cell: (s) => <StateBadge session={s} />, width: '7rem' },
  { key: 'tenant', title: 'Tenant', by: (s) => s.tenant ?? '', cell: (s) => s.tenant ? <span title={s.tenant}>{s.tenant}</span> : <span class="quiet">–</span>, less: 1, width: '7.5rem' },
  { key: 'runtime', title: 'Runtime', by: (s) => s.runtime, cell: (s) => <span title={s.runtime}>{s.runtime}</span>, less: 2, width: '6.5rem' },
  { key: 'created', title: 'Age', by: (s) => -s.created_at, cell: (s) => <Age since={s.created_at} />, align: 'end', less: 2, width: '6.5rem' },
  { key: 'idle', title: 'Idle', by: (s) => -s.last_activity, cell: (s) => <Idle since={s.last_activity} />, align: 'end', less: 1, width: '6.5rem' },
  {
    key: 'memory',
    title: 'Memory',
    by: (s) => s.usage?.memory_bytes ?? -1,
    cell: (s) => {
      const used = s.usage?.memory_bytes;
      const limit = memoryLimit(s);
      if (used === null || used === undefined) return <span class="quiet">–</span>;
      return (
        <span class="inline-meter" title={limit ? `${bytes(used)} of ${bytes(limit)}` : undefined}>
          {bytes(used)}
          {limit ? (
            <i class={used > limit * 0.9 ? 'full' : ''}>
              <b style={{ width: `${Math.min(100, (used / limit) * 100)}%` }} />
            </i>
          ) : null}
        </span>
      );
    },
    align: 'end',
    width: '7.5rem',
    less: 1,
  },
  { key: 'cpu', title: 'CPU', by: (s) => s.usage?.cpu_percent ?? -1, cell: (s) => (s.usage?.cpu_percent == null ? <span class="quiet">–</span> : percent(s.usage.cpu_percent)), align: 'end', less: 1, width: '5rem' },
  {
    key: 'running',
    title: 'Running',
    by: (s) => s.running_commands ?? 0,
    cell: (s) =>
      s.running_commands ? (
        <span class="clip mono" title={s.running ?? ''}>
          {s.running_commands > 1 && <span class="count">{s.running_commands}</span>}
          {s.running}
        </span>
      ) : (
        <span class="quiet">–</span>
      ),
    less: 2,
  },
  { key: 'actions', title: '', cell: (s) => <Menu label={`Actions on ${s.session_id}`} items={sessionActions(s)} />, align: 'end', width: '3.5rem', whole: true },
];

// The words that a session is found by, made once a session and state.
const haystacks = new WeakMap<Session, string>();
function haystack(session: Session): string {
  let text = haystacks.get(session);
  if (text === undefined) {
    text = `${session.session_id} ${session.tenant ?? ''} ${session.runtime} ${STATE_TEXT[stateOf(session)]} ${session.running ?? ''}`.toLowerCase();
    haystacks.set(session, text);
  }
  return text;
}

function matching(all: Session[], text: string): Session[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length ? all.filter((session) => words.every((word) => haystack(session).includes(word))) : all;
}

function groupsOf(rows: Session[]): Group<Session>[] {
  const by = new Map<string, Session[]>();
  for (const row of rows) {
    const list = by.get(row.tenant ?? '');
    if (list) list.push(row);
    else by.set(row.tenant ?? '', [row]);
  }
  return [...by].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, list]) => ({
    name,
    rows: list,
    head: (
      <>
        {name || 'No tenant'}{' '}
        <span class="quiet">
          {plural(list.length, 'session')}, {list.filter((row) => stateOf(row) === 'running').length} running, {bytes(list.reduce((sum, row) => sum + (row.usage?.memory_bytes ?? 0), 0))}
        </span>
      </>
    ),
  }));
}

export const Capacity = () => {
  const count = counts.value;
  const live = count.running + count.frozen + count.dead;
  return (
    <div class="meters">
      <Meter label="Live sandboxes" used={live} limit={limits.value.limit} />
      <Meter label="Open sessions" used={sessions.value?.length ?? null} limit={limits.value.open_limit} />
    </div>
  );
};

export const Sessions = () => {
  const all = sessions.value;
  // In order first: a key in the filter then only leaves rows out.
  const ordered = useMemo(() => sorted(all ?? [], COLUMNS, sort.value), [all, sort.value]);
  const rows = useMemo(() => matching(ordered, filter.value), [ordered, filter.value]);
  const groups = useMemo(() => (grouped.value ? groupsOf(rows) : null), [rows, grouped.value]);
  const fold = (name: string) => {
    const next = new Set(folded.value);
    if (!next.delete(name)) next.add(name);
    folded.value = next;
  };
  return (
    <div class="view view-table">
      <div class="view-head">
        <h1>Sessions</h1>
        <Capacity />
        <button type="button" class="primary" onClick={askOpen}>
          <Icon name="plus" /> Open a session
        </button>
      </div>
      <div class="toolbar">
        <label class="search">
          <span class="unseen">Filter sessions</span>
          <Icon name="search" />
          <input type="search" placeholder="Filter by name, tenant, runtime, state, command" value={filter.value} onInput={(event) => (filter.value = event.currentTarget.value)} spellcheck={false} />
        </label>
        <label class="check">
          <input type="checkbox" checked={grouped.value} onChange={(event) => (grouped.value = event.currentTarget.checked)} /> Group by tenant
        </label>
        <span class="quiet" role="status">
          {all && (rows.length === all.length ? plural(all.length, 'session') : `${rows.length} of ${plural(all.length, 'session')}`)}
        </span>
      </div>
      {sessionsError.value !== null && !(all && isAway(sessionsError.value)) && <ErrorBox error={sessionsError.value} retry={() => void refreshSessions()} />}
      {all ? (
        <Table
          label="Sessions"
          columns={COLUMNS}
          rows={rows}
          rowKey={(session) => session.session_id}
          sort={sort.value}
          onSort={(next) => (sort.value = next)}
          groups={groups}
          folded={folded.value}
          onFold={fold}
          empty={
            all.length ? (
              <Empty title="No session matches" icon="search">
                Nothing here has all of those words in its name, tenant, runtime, state or command.
              </Empty>
            ) : (
              <Empty title="No session is open" icon="sessions">
                Sandboxes appear here as applications open them. Open one yourself to try a terminal.
              </Empty>
            )
          }
        />
      ) : (
        sessionsError.value === null && <Loading what="sessions" />
      )}
    </div>
  );
};
