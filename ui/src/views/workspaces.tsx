// Every stored workspace, open or long closed; no container is asked.
import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { get, isAbort, isAway, send } from '../lib/api';
import { bytes, number, plural } from '../lib/format';
import { hrefTo } from '../lib/router';
import { feed } from '../lib/state';
import type { Workspace } from '../lib/types';
import { askPurgeWorkspace, openOn } from '../parts/actions';
import { Icon } from '../parts/icons';
import { Menu, type MenuItem } from '../parts/menu';
import { Ago, Empty, ErrorBox, Loading } from '../parts/small';
import { type Column, type Sort, Table } from '../parts/table';
import { attempt } from '../parts/toast';

const PAGE = 200;
const TYPING_MS = 150;

const filter = signal('');
const sort = signal<Sort>({ key: 'last_use', down: true });

export const workspaceActions = (row: Workspace, changed: () => void): MenuItem[] => [
  row.open ? { label: 'Go to its session', action: () => (location.hash = hrefTo('sessions', row.id, 'files')) } : { label: 'Open a session on it', action: () => void openOn(row) },
  {
    label: row.pinned ? 'Unpin' : 'Pin: the TTL leaves it',
    action: () => void attempt(() => send('PUT', `/workspaces/${row.id}`, { pinned: !row.pinned }), row.pinned ? `${row.id} is no longer pinned.` : `${row.id} is pinned.`).then(changed),
  },
  { label: 'Purge…', danger: true, disabled: row.open, action: () => askPurgeWorkspace(row, bytes(row.size_bytes), changed) },
];

const columns = (changed: () => void): Column<Workspace>[] => [
  {
    key: 'id',
    title: 'Workspace',
    by: (w) => w.id,
    cell: (w) => (
      <span class="named">
        <a class="mono clip" href={hrefTo('workspaces', w.id)}>
          {w.id}
        </a>
        {w.pinned && (
          <span title="Pinned">
            <Icon name="pin" />
            <span class="unseen">pinned</span>
          </span>
        )}
        {w.over_quota && <span class="tag tag-bad">over quota</span>}
      </span>
    ),
    under: (w) => (
      <>
        {w.tenant && `${w.tenant}, `}
        <Ago at={w.last_use} />
      </>
    ),
    wide: true,
  },
  { key: 'open', title: 'State', cell: (w) => (w.open ? <span class="state"><i aria-hidden="true" />Open</span> : <span class="state state-asleep"><i aria-hidden="true" />Closed</span>), width: '6.5rem' },
  { key: 'tenant', title: 'Tenant', cell: (w) => w.tenant ?? <span class="quiet">–</span>, less: 1, width: '8rem' },
  { key: 'runtime', title: 'Runtime', cell: (w) => w.runtime ?? <span class="quiet">–</span>, less: 2, width: '7rem' },
  { key: 'size', title: 'Size', by: (w) => w.size_bytes ?? 0, cell: (w) => bytes(w.size_bytes), align: 'end', width: '6.5rem' },
  { key: 'files', title: 'Entries', cell: (w) => number(w.file_count), align: 'end', width: '6rem', less: 2 },
  { key: 'last_use', title: 'Last use', by: (w) => w.last_use ?? 0, cell: (w) => <Ago at={w.last_use} />, width: '9.5rem', less: 1 },
  { key: 'expires', title: 'TTL takes it', cell: (w) => (w.expires_at ? <Ago at={w.expires_at} /> : <span class="quiet">{w.pinned ? 'pinned' : w.open ? 'not while open' : 'never'}</span>), width: '9rem', less: 1 },
  { key: 'actions', title: '', cell: (w) => <Menu label={`Actions on ${w.id}`} items={workspaceActions(w, changed)} />, align: 'end', width: '3.5rem', whole: true },
];

// The wire's word for an order.
const orderOf = (by: Sort): string => (by.key === 'id' ? 'id' : `${by.down ? '-' : ''}${by.key}`);

export const Workspaces = () => {
  const [rows, setRows] = useState<Workspace[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [round, setRound] = useState(0);
  const loading = useRef<AbortController | null>(null);
  const again = () => setRound((was) => was + 1);

  const load = async (cursor: string | null, keep: Workspace[], limit = PAGE) => {
    loading.current?.abort();
    const abort = new AbortController();
    loading.current = abort;
    try {
      const page = await get<{ workspaces: Workspace[]; next: string | null }>('/workspaces', { contains: filter.value.trim(), sort: orderOf(sort.value), limit, cursor: cursor ?? undefined }, abort.signal);
      setRows([...keep, ...page.workspaces]);
      setNext(page.next);
      setError(null);
    } catch (reason) {
      if (!isAbort(reason)) setError(reason);
    } finally {
      if (loading.current === abort) loading.current = null;
    }
  };
  // What is opened, closed and purged meanwhile changes the list.
  const last = feed.value.findLast((event) => ['opened', 'closed', 'purged', 'reaped'].includes(event.op))?.seq ?? 0;
  const shown = rows?.length ?? 0;
  useEffect(() => {
    const timer = setTimeout(() => void load(null, [], Math.min(1000, Math.max(PAGE, shown))), rows ? TYPING_MS : 0);
    return () => clearTimeout(timer);
  }, [filter.value, sort.value, round, last]);
  useEffect(() => () => loading.current?.abort(), []);

  return (
    <div class="view view-table">
      <div class="view-head">
        <h1>Workspaces</h1>
        <p class="quiet">Files outlive their sessions. Looking starts nothing.</p>
      </div>
      <div class="toolbar">
        <label class="search">
          <span class="unseen">Search workspaces</span>
          <Icon name="search" />
          <input type="search" placeholder="Search by name or tenant" value={filter.value} onInput={(event) => (filter.value = event.currentTarget.value)} spellcheck={false} />
        </label>
        <span class="quiet" role="status">
          {rows && `${plural(rows.length, 'workspace')}${next ? ', and more' : ''}`}
        </span>
        <button type="button" class="end" onClick={again}>
          <Icon name="refresh" /> Refresh
        </button>
      </div>
      {error !== null && !(rows && isAway(error)) && <ErrorBox error={error} retry={again} />}
      {rows ? (
        <Table
          label="Workspaces"
          columns={columns(again)}
          rows={rows}
          rowKey={(row) => row.id}
          sort={sort.value}
          onSort={(to) => (sort.value = to.key === sort.value.key ? to : { ...to, down: to.key !== 'id' })}
          onEnd={() => next && !loading.current && void load(next, rows)}
          empty={
            filter.value ? (
              <Empty title="No workspace matches" icon="search">
                No name or tenant has that in it.
              </Empty>
            ) : (
              <Empty title="Nothing is stored yet" icon="workspaces">
                The files of every session are kept here when it is closed, until the TTL or a purge takes them.
              </Empty>
            )
          }
        />
      ) : (
        error === null && <Loading what="workspaces" />
      )}
    </div>
  );
};
